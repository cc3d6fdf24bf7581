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
# The cluster begins with what it is to run, and need not wait for other nodes as long as usual.
cat > /var/lib/pacemaker/cib/cib.xml <<C
<cib crm_feature_set="3.0.14" validate-with="pacemaker-3.0" epoch="1" num_updates="0"
    admin_epoch="1">
  <configuration>
    <crm_config>
      <cluster_property_set id="x">
        <nvpair id="x1" name="stonith-enabled" value="false"/>
        <nvpair id="x2" name="dc-deadtime" value="1s"/>
      </cluster_property_set>
    </crm_config>
    <nodes/>
    <resources>
      <primitive id="dummy" class="ocf" provider="pacemaker" type="Dummy"/>
    </resources>
    <constraints/>
  </configuration>
  <status/>
</cib>
C
chown hacluster:haclient /var/lib/pacemaker/cib/cib.xml
chmod 600 /var/lib/pacemaker/cib/cib.xml
corosync -f -c $1/corosync.conf > $1/coro.log 2>&1 &
C=$!
sleep 1
pacemakerd > $1/pcmk.log 2>&1 &
P=$!
started() {
    for i in $(seq 400); do
        crm_mon -1 2>/dev/null | grep -q Started && return
        sleep 0.1
    done
}
started
crm_mon -1 | grep -i dummy
export FOREWARN_STATE=/run/fwstate FOREWARN_SETTINGS='{"wait_s": 20}'; mkdir -p $FOREWARN_STATE
PY=$2
echo '{"phase":"prepare"}' | $PY -m forewarn.agent do pacemaker prepare
crm_mon -1 | grep -iE "standby|dummy|Online"
echo '{"phase":"recover"}' | $PY -m forewarn.agent do pacemaker recover
started
crm_mon -1 | grep -iE "standby|dummy|Online"
kill -9 $P $C # the namespace, which ends with this, takes the rest along
