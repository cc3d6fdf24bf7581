#!/bin/sh
# Runs inside a Debian that has just booted, by tests/release/installed.py; `set -x` is the report.
set -eux
cd /mnt/test
trap 'test -e result || journalctl --no-pager -n 40 -u forewarn -u forewarn-agent' EXIT

wait_for() { # until a command succeeds; a slow machine has a minute
    { set +x; } 2> /dev/null
    for _ in $(seq 60); do
        if "$@" > /dev/null 2>&1; then set -x; return 0; fi
        sleep 1
    done
    set -x
    "$@"
}

not() { # a command must fail; `set -e` takes no notice of `!`
    if "$@"; then return 1; fi
}

# -- install: the user and the directories are there, nothing runs before it is configured
dpkg --install old/*.deb
id forewarn
test "$(stat -c '%U %a' /var/lib/forewarn)" = 'forewarn 750'
test "$(stat -c '%G %a' /etc/forewarn)" = 'forewarn 750'
not systemctl is-active forewarn forewarn-metadata forewarn-agent
test -e /usr/share/man/man1/forewarn-host.1.gz
test -e /usr/share/bash-completion/completions/forewarn
bash -n /usr/share/bash-completion/completions/forewarn
forewarn --version
forewarn-agent --version

# -- the service starts
cat > /etc/forewarn/forewarn.toml.d/test.toml <<'EOF'
[listen]
metadata = ["127.0.0.1:80"]
[operator]
open_on_loopback = true
[drivers]
default = "simulated"
EOF
cat > fleet.toml <<'EOF'
[hosts.h1]
[vms.vm-1]
host = "h1"
addresses = ["127.0.0.1"]
EOF
systemctl enable --now forewarn
wait_for forewarn topology apply fleet.toml
test "$(stat -c %U /var/lib/forewarn/forewarn.db)" = forewarn
forewarn conformance server http://127.0.0.1 --only E-1 --only E-2 --only D-1

# -- the agent starts, and approves
cat > /etc/forewarn-agent/agent.toml <<'EOF'
[agent]
endpoint = "http://127.0.0.1"
EOF
systemctl enable --now forewarn-agent
forewarn host reboot h1 --duration 5s
wait_for sh -c 'forewarn history | grep -q approved'

# -- an upgrade keeps the store and the configuration, and restarts the service
before=$(systemctl show --property MainPID forewarn)
dpkg --install new/*.deb
wait_for forewarn vm list
test "$before" != "$(systemctl show --property MainPID forewarn)"
forewarn vm list | grep vm-1
test -e /etc/forewarn/forewarn.toml.d/test.toml
systemctl is-active forewarn-agent

# -- removing keeps the store, purging removes everything
dpkg --remove forewarn forewarn-agent
not systemctl is-active forewarn forewarn-agent
test -e /var/lib/forewarn/forewarn.db
test ! -e /usr/lib/forewarn
dpkg --install new/*.deb
systemctl start forewarn
wait_for forewarn vm list
forewarn vm list | grep vm-1
dpkg --purge forewarn forewarn-agent
for gone in /var/lib/forewarn /etc/forewarn /var/lib/forewarn-agent /etc/forewarn-agent \
    /usr/lib/forewarn /usr/bin/forewarn; do
    test ! -e $gone
done
echo passed > result
