"""Two examples of each command, for its help. Each line stands without the word `forewarn`."""

from __future__ import annotations

_EXAMPLES = """
emulate --vm web-0 --vm web-1
emulate --topology fleet.toml --scenario host-reboot --speed 60

status
status --watch

show op-12
show h7 --web

host add h7 --zone 2 --fault-domain 1 --label rack=r7
host add h7 --memory-mib 262144 --replace

host list --state failed
host list --selector rack=r7 --sort=-vms

host show h7
host show h7 -o yaml

host remove h7
host remove h7 h8 --yes

host update h7 --not-before +1h
host update --selector rack=r7 --restart --wait

host reboot h7 --duration 10m
host reboot --file hosts.txt --not-before 2026-11-21T18:30:00Z

host migrate h7
host migrate h7 --destination h8 --wait --timeout 3600

host degrade h7 --duration 5m
host degrade h7 --freeze --not-before +30m

host fail h7
host fail h7 --lost --yes

host repair h7
host repair h7 h8

group add web --owner shop
group add db --kind availability-set --strict-approval --keep-apart rack

group list --owner shop
group list --not-polling

group show web
group show web -o yaml

group remove web
group remove web db --yes

vm add web-0 --host h7 --group web
vm add web-0 --host h7 --address 10.0.0.4 --size Standard_D4s_v5 --replace

vm list --host h7
vm list --group web -o name

vm show web-0
vm show web-0 -o json

vm remove web-0
vm remove web-0 web-1 --yes

vm reboot web-0
vm reboot web-0 web-1 --wait

vm redeploy web-0
vm redeploy web-0 --destination h8

vm evict spot-0
vm evict spot-0 --yes --wait

vm delete web-0
vm delete web-0 --not-before +10m --yes

vm reimage web-0
vm reimage web-0 --wait --timeout 1800

topology apply fleet.toml --dry-run
topology apply fleet.yaml --prune

topology show
topology show --format yaml

topology import driver site
topology import driver site --config site.toml --follow

topology import kubernetes
topology import kubernetes --follow

topology import libvirt h1=qemu+tls://h1.example/system
topology import libvirt --config libvirt.toml --follow

topology import nova
topology import nova --dry-run

operation list
operation list --all --since 2h --state failed

operation show op-12
operation show op-12 --watch

operation why op-12
operation why h7

operation approve op-12
operation approve 45CB45B4 --wait

operation cancel op-12
operation cancel op-12 --reason "wrong host" --yes

operation complete op-12
operation complete op-12 --failed --reason "no power"

operation retry op-12
operation retry op-12 --wait

event list --group web
event list --state scheduled --watch

event show 45CB45B4
event show 45CB45B4 -o json

event outcome 45CB45B4
event outcome 45CB45B4 -o yaml

event report --owner shop --month 2026-11
event report --group web --since 2026-11-01T00:00:00Z --format csv

document web-0
document --url http://127.0.0.1:8169 --json

maintenance plan h1 h2 h3
maintenance plan --selector rack=r7 --cause host-update --max-at-once 2

maintenance create --all --reason "kernel 6.12" --deadline +7d
maintenance create --file hosts.txt --canary h1 --start

maintenance start m-12
maintenance start m-12 --json

maintenance pause m-12
maintenance pause m-12 --reason "an alarm" --keep-announced

maintenance resume m-12
maintenance resume m-12 -o yaml

maintenance cancel m-12
maintenance cancel m-12 --reason "wrong firmware" --yes

maintenance postpone m-12 h7 --until 4h
maintenance postpone m-12 --owner shop --until 2026-11-22T06:00:00Z --by alice

maintenance declare m-12
maintenance declare m-12 --severity emergency --hand-back 20m --reason "coolant leak in r7"

declaration list
declaration list -o json

declaration calendar
declaration calendar --server https://ops.example.org:8470

declaration choose m-12 --vm web-0 --at 2026-12-06T02:00:00+01:00
declaration choose m-12 --host h7 --opening 3 --approve

declaration defer m-12 --group web --until 2026-12-20T02:00:00+01:00 --reason "year-end closing"
declaration defer m-12 --host h7 --until +21d --reason "spare parts"

deferral list
deferral list -o json

deferral withdraw m-12 --host h7
deferral withdraw m-12 --group web

deferral grant m-12 --owner shop
deferral grant m-12 --owner shop --host h7 --reason "by telephone"

deferral refuse m-12 --owner shop --reason "the firmware has a known fault"
deferral refuse m-12 --owner shop --host h7 --reason "no later window"

declaration test-first m-12 --group canary
declaration test-first m-12 --group canary --observation 2d

declaration hold m-12 --reason "errors on the test hosts"
declaration hold m-12 --reason "errors on the test hosts" --owner shop

declaration resume m-12
declaration resume m-12 --owner shop

declaration release m-12 --host h7
declaration release m-12 --group web --dry-run

declaration openings m-12 --host h7
declaration openings m-12 --vm web-0 -o json

declaration show m-12
declaration show m-12 -o wide

maintenance show m-12
maintenance show m-12 --watch

maintenance list
maintenance list --all --state done

maintenance diff m-12
maintenance diff m-12 --plan 5 --against 2

maintenance report m-12
maintenance report m-12 --format html

policy apply policy.toml --dry-run
policy apply policy.yaml

policy check policy.toml
policy check - --format json

policy show
policy show --format yaml

policy windows --days 14
policy windows --host h7

history list --host h7
history list --action operation.started --since 1d

history export --output history.jsonl.gz
history export --after 1000 --vm web-0

watch
watch --host h7 --count 10

wait op-12
wait m-12 --for done --timeout 3600

serve
serve --config forewarn.toml --check

reload
reload --server unix:/run/forewarn/operator.sock

leader show
leader show --watch

leader step-down
leader step-down --server https://control-1.example:8470

node run --follow control.example:8472 --hosts h7
node run --config node.toml --listen 169.254.169.254:80

emulator run --vm web-0
emulator run --topology fleet.toml --quiet

emulator clock show
emulator clock show --json

emulator clock advance 15m
emulator clock advance 7d

emulator clock speed 60
emulator clock speed 1

emulator clock stop
emulator clock stop --json

emulator clock start
emulator clock start --json

emulator play-aks
emulator play-aks --config forewarn.toml --follow

emulator scenario list
emulator scenario list -o name

emulator scenario show host-reboot
emulator scenario show host-reboot --json

emulator scenario run host-reboot
emulator scenario run story.toml --vm web-1

emulator scenario stop host-reboot
emulator scenario stop host-reboot --json

emulator fault list
emulator fault list --json

emulator fault set 500=2x,post,vm=web-0
emulator fault set slow-first=30s

emulator fault clear
emulator fault clear 500

conformance server http://127.0.0.1:8169
conformance server http://127.0.0.1:8169 --only E-7 --junit report.xml

conformance client --agent
conformance client --story early-end -- python client.py

access list
access list -o csv

access grant user:kim operator
access grant alice owner --owner shop

access revoke user:kim operator
access revoke alice owner --owner shop

access can-i POST /v1/hosts/h7/reboot
access can-i POST /v1/operations --host h7

access token create deploy --role operator
access token create shop --role owner --owner shop --expires +30d

access token list
access token list --sort expires

access token revoke 4f2a
access token revoke 4f2a --server unix:/run/forewarn/operator.sock

access token resume 4f2a
access token resume 4f2a 77c0

login
login --server https://control.example:8470 --web

logout
logout --server https://control.example:8470

whoami
whoami --token-file token

confirmation list
confirmation list --watch

confirmation confirm c-12
confirmation confirm c-12 --json

confirmation lift fail-host --until 1h --reason "fire in room 2"
confirmation lift start-maintenance --until 30m --reason "nobody answers"

confirmation withdraw c-12
confirmation withdraw c-12 --json

confirmation refuse c-12
confirmation refuse c-12 --json

audit list
audit list --limit 200 -o csv

audit export
audit export --server https://control.example:8470

audit verify
audit verify --file audit.jsonl.gz --key-file audit.key

doctor
doctor --config forewarn.toml

store backup forewarn.backup
store backup forewarn.backup --store store.db

store verify forewarn.backup
store verify forewarn.backup --json

store restore forewarn.backup
store restore --in-place --config forewarn.toml

store upgrade
store upgrade --config forewarn.toml

store compact
store compact --store store.db

upgrade check
upgrade check --config forewarn.toml

driver list
driver list --config forewarn.toml

driver check libvirt --host h7
driver check libvirt --host h7 --vm web-0 --task-timeout 120

driver mark-nodes
driver mark-nodes --follow --config forewarn.toml

driver answer-resources --cluster prod --tokens namespaces
driver answer-resources --cluster prod --tokens namespaces --follow

driver discover libvirt
driver discover nova --config forewarn.toml

outbox list
outbox list --watch

outbox retry mail
outbox retry mail --json

outbox skip mail --to 1200
outbox skip mail --to 1200 --json

context list
context list -o json

context add production --server https://control.example:8470 --token-file token
context add test --server localhost:8470

context use production
context use test

context remove test
context remove production

availability show --owner shop --from 2026-10-01 --to 2026-11-01
availability show --vm web-0 -o json

availability export --owner shop --from 30d --output october.jsonl
availability export --vm web-0

ticket list --owner shop
ticket list --type incident --all

ticket show t-12
ticket show t-12 --watch

ticket open --host h7 --category gpu --description "GPU 3 has fallen off the bus"
ticket open --vm web-0 -d "disk errors" --evidence "I/O error, dev sdb"

ticket answer t-12 --text "It happens under load."
ticket answer t-12 --text "It has failed again."

ticket close t-12
ticket close t-12 --action "GPU replaced"

ticket reopen t-12 --reason "closed by mistake"
ticket reopen t-12 --reason "It has failed again."

ticket ask t-12 --text "Since when?"
ticket ask t-12 --text "May we reboot it now?"

ticket work t-12
ticket work t-12 --operation op-14

ticket resolve t-12 --action "GPU 3 replaced"
ticket resolve t-12 --action "firmware updated" --text "Please check."

ticket refuse t-12 --reason "The GPU passes its diagnosis."
ticket refuse t-12 --reason "It is not our hardware."

ticket link t-12 INC0042
ticket link t-12 BREAK-7

promises show --owner shop --from 30d
promises show --by owner --sort=-disturbed_ms

promises report --month 2026-10
promises report --month 2026-10 --owner shop --format html

explain host-not-approved
explain driver

completion bash
completion fish

version
version -o json
"""


def examples_of(command: str) -> list[str]:
    """Return two examples of a command, or of the first commands of a noun."""
    pairs = [pair.splitlines() for pair in _EXAMPLES.strip().split("\n\n")]
    own = [pair for pair in pairs if f"{pair[0]} ".startswith(f"{command} ")]
    lines = own[0] if len(own) == 1 else [pair[0] for pair in own[:2]]
    return [f"forewarn {line}" for line in lines]
