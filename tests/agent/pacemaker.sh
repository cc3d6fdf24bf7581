#!/bin/bash
# A one-node cluster of real Corosync and Pacemaker in namespaces of its own: SCRATCH PYTHON.
# Nothing of the machine's own cluster state is touched; it tells what it saw on standard output.
set -e
mount --make-rprivate /
for d in /var/lib/pacemaker /var/lib/corosync /var/log /run /dev/shm; do
    mount -t tmpfs tmpfs $d
done
mkdir -p /run/{crm,lock,resource-agents} /var/log/{pacemaker,corosync,cluster} \
    /var/lib/pacemaker/{cib,pengine,cores,blackbox}
chown -R hacluster:haclient /var/lib/pacemaker /run/crm /var/log/pacemaker
chmod 750 /var/lib/pacemaker/*
ip link set lo up
hostname node-1
cat > $1/corosync.conf <<C
totem {
  version: 2
  cluster_name: test
  transport: udpu
  interface {
    ringnumber: 0
    bindnetaddr: 127.0.0.1
    mcastport: 5405
  }
}
nodelist {
  node {
    ring0_addr: 127.0.0.1
    name: node-1
    nodeid: 1
  }
}
quorum {
  provider: corosync_votequorum
}
logging {
  to_stderr: yes
  to_syslog: no
}
C
corosync -f -c $1/corosync.conf > $1/coro.log 2>&1 &
C=$!
sleep 1
pacemakerd > $1/pcmk.log 2>&1 &
P=$!
for i in $(seq 80); do
    sleep 0.5
    crm_mon -1 2>/dev/null | grep -q "Online: \[ node-1" && break
done
cibadmin --create -o crm_config --xml-text \
    '<cluster_property_set id="x">'\
'<nvpair id="x1" name="stonith-enabled" value="false"/></cluster_property_set>'
cibadmin --create -o resources --xml-text \
    '<primitive id="dummy" class="ocf" provider="pacemaker" type="Dummy"/>'
for i in $(seq 30); do
    sleep 0.5
    crm_mon -1 | grep -q "Started" && break
done
crm_mon -1 | grep -i dummy
export FOREWARN_STATE=/run/fwstate FOREWARN_SETTINGS='{"wait_s": 20}'; mkdir -p $FOREWARN_STATE
PY=$2
echo '{"phase":"prepare"}' | $PY -m forewarn.agent do pacemaker prepare
crm_mon -1 | grep -iE "standby|dummy|Online"
echo '{"phase":"recover"}' | $PY -m forewarn.agent do pacemaker recover
for i in $(seq 30); do
    sleep 0.5
    crm_mon -1 | grep -q "Started" && break
done
crm_mon -1 | grep -iE "standby|dummy|Online"
kill $P; sleep 2; kill $C
