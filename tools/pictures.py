"""Takes the documents' pictures of the page, from a service with a sample fleet.

    make pictures

Run it manually, because pictures differ between browsers.
"""

from __future__ import annotations

from pathlib import Path

from tests.api.live import Live
from tests.page.browser import Browser
from tests.waiting import wait_until

PICTURES = Path(__file__).parents[1] / "docs/pictures"
ZONES, RACKS, HOSTS, VMS = 3, 8, 20, 4


def fleet() -> dict[str, dict[str, dict[str, object]]]:
    """Return hosts in zones and racks; each group has VMs on six hosts."""
    hosts: dict[str, dict[str, object]] = {}
    vms: dict[str, dict[str, object]] = {}
    for zone in range(1, ZONES + 1):
        for rack in range(RACKS):
            for number in range(1, HOSTS + 1):
                name = f"z{zone}-r{rack + 1}-h{number:02}"
                hosts[name] = {"zone": str(zone), "fault_domain": rack}
                for _ in range(VMS):
                    vms[f"vm-{len(vms):04}"] = {"host": name, "group": f"shop-{len(vms) // 6}"}
    groups: dict[str, dict[str, object]] = {f"shop-{n}": {} for n in range(len(vms) // 6 + 1)}
    return {"hosts": hosts, "groups": groups, "vms": vms}


def main() -> None:
    """Write every picture."""
    live, browser = Live(), Browser(width=1360, height=850)
    try:
        described = fleet()
        live.fleet(**described)
        live.enable(*(f"vm-{n:04}" for n in range(0, len(described["vms"]), 6)))
        live.post("/v1/hosts/z2-r8-h09/fail")
        for host in ("z1-r1-h03", "z1-r2-h07", "z2-r3-h11", "z2-r5-h02", "z3-r7-h19"):
            live.post(f"/v1/hosts/{host}/reboot")
        live.post("/v1/hosts/z3-r1-h01/update", duration="9s")
        live.post("/v1/vms/vm-0100/redeploy")
        live.advance(200)
        hosts = [f"z1-r4-h{number:02}" for number in range(1, 7)]
        form = {"cause": "host-update", "hosts": hosts, "duration": "PT5M", "reason": "firmware"}
        made = live.call("POST", "/v1/maintenances", form).json["maintenance"]["id"]
        live.post(f"/v1/maintenances/{made}/start")
        wait_until(lambda: live.get(f"/v1/maintenances/{made}")["maintenance"]["announced"])
        take(browser, f"{live.url}/", "page-fleet.png")
        take(browser, f"{live.url}/#/operations/op-2", "page-operation.png")
        take(browser, f"{live.url}/#/maintenances/{made}", "page-maintenance.png")
        browser.run("localStorage.setItem('forewarn-theme', 'dark')")
        browser.resize(390, 844, phone=True)
        take(browser, f"{live.url}/#/maintenances/{made}", "page-phone.png")
    finally:
        browser.open("about:blank")
        browser.close()
        live.stop()


def take(browser: Browser, url: str, name: str) -> None:
    """Write one picture."""
    browser.open("about:blank")
    browser.open(url)
    browser.until(
        "document.querySelector('.legend b, .life, .wave') && document.querySelector('.live')"
    )
    browser.until("document.getAnimations().length === 0")
    PICTURES.mkdir(exist_ok=True)
    browser.picture(PICTURES / name)


if __name__ == "__main__":
    main()
