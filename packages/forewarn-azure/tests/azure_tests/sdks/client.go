// What a user does with Azure's SDK for Go: `client ARM SUBSCRIPTION GROUP [maintenance]`.
// Prints the VMs before and after, or how many seconds a credential takes to find no identity.
package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

var ctx = context.Background()

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func finish[T any](poller *runtime.Poller[T], err error) {
	must(must(poller, err).PollUntilDone(ctx, nil))
}

func main() {
	url, subscription, group := os.Args[1], os.Args[2], os.Args[3]
	credential := must(azidentity.NewDefaultAzureCredential(nil))
	scopes := policy.TokenRequestOptions{Scopes: []string{url + "/.default"}}
	credential.GetToken(ctx, scopes) // the first one also tells which identities there are
	began := time.Now()
	if _, err := credential.GetToken(ctx, scopes); err != nil {
		print(map[string]any{"no_identity_s": time.Since(began).Seconds()})
		return
	}

	services := map[cloud.ServiceName]cloud.ServiceConfiguration{
		cloud.ResourceManager: {Endpoint: url, Audience: url},
	}
	options := arm.ClientOptions{DisableRPRegistration: true}
	options.Cloud = cloud.Configuration{Services: services}
	if len(os.Args) > 4 {
		maintain(credential, &options)
		return
	}
	clients := must(armcompute.NewClientFactory(subscription, credential, &options))
	vms, sets := clients.NewVirtualMachinesClient(), clients.NewVirtualMachineScaleSetsClient()
	instances := clients.NewVirtualMachineScaleSetVMsClient()
	names := func() []string {
		found := []string{}
		for pages := vms.NewListPager(group, nil); pages.More(); {
			for _, vm := range must(pages.NextPage(ctx)).Value {
				found = append(found, *vm.Name)
			}
		}
		for pages := instances.NewListPager(group, "web", nil); pages.More(); {
			for _, vm := range must(pages.NextPage(ctx)).Value {
				found = append(found, *vm.Name)
			}
		}
		slices.Sort(found)
		return found
	}

	before, capacity := names(), int64(3)
	finish(vms.BeginRestart(ctx, group, "db", nil))
	finish(vms.BeginRedeploy(ctx, group, "db", nil))
	must(vms.SimulateEviction(ctx, group, "spot", nil))
	size := armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: &capacity}}
	finish(sets.BeginUpdate(ctx, group, "web", size, nil))
	finish(instances.BeginRestart(ctx, group, "web", "1", nil))
	finish(instances.BeginRedeploy(ctx, group, "web", "1", nil))
	must(instances.SimulateEviction(ctx, group, "web", "0", nil))
	finish(instances.BeginDelete(ctx, group, "web", "1", nil))
	finish(vms.BeginDelete(ctx, group, "db", nil))
	print(map[string]any{"before": before, "after": names()})
}

func print(told map[string]any) {
	os.Stdout.Write(must(json.Marshal(told)))
}
