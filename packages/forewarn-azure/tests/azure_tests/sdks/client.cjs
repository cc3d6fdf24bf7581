// What a user does with Azure's SDK for JavaScript: `client.cjs ARM SUBSCRIPTION GROUP`.
// Prints the VMs before and after, or how many seconds a credential takes to find no identity.
const { ComputeManagementClient } = require("@azure/arm-compute");
const { DefaultAzureCredential } = require("@azure/identity");

const [arm, subscription, group] = process.argv.slice(2);
const scope = `${arm}/.default`;

async function secondsWithoutIdentity(credential) {
  const began = performance.now();
  try {
    await credential.getToken(scope);
  } catch {
    return (performance.now() - began) / 1000;
  }
}

async function names(compute) {
  const found = [];
  for await (const vm of compute.virtualMachines.list(group)) found.push(vm.name);
  for await (const vm of compute.virtualMachineScaleSetVMs.list(group, "web")) found.push(vm.name);
  return found.sort();
}

async function main() {
  const credential = new DefaultAzureCredential();
  await secondsWithoutIdentity(credential); // the first one also loads code
  const seconds = await secondsWithoutIdentity(credential);
  if (seconds !== undefined) return { no_identity_s: seconds };

  const options = { endpoint: arm, credentials: { scopes: [scope] } };
  const compute = new ComputeManagementClient(credential, subscription, options);
  const { virtualMachines: vms, virtualMachineScaleSets: sets } = compute;
  const instances = compute.virtualMachineScaleSetVMs;
  const before = await names(compute);
  await vms.restart(group, "db");
  await vms.redeploy(group, "db");
  await vms.simulateEviction(group, "spot");
  await sets.update(group, "web", { sku: { capacity: 3 } });
  await instances.restart(group, "web", "1");
  await instances.redeploy(group, "web", "1");
  await instances.simulateEviction(group, "web", "0");
  await instances.delete(group, "web", "1");
  await vms.delete(group, "db");
  return { before, after: await names(compute) };
}

main().then((told) => console.log(JSON.stringify(told)));
