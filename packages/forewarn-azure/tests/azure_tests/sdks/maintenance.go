package main

import (
	"context"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/maintenance/armmaintenance"
)

// maintain prints what a user reads of configurations, assignments and updates of a VM, and applies
// the planned work.
func maintain(credential azcore.TokenCredential, options *arm.ClientOptions) {
	const provider, kind, vm, name = "Microsoft.Compute", "virtualMachines", "db", "nights"
	ctx, subscription, group := context.Background(), os.Args[2], os.Args[3]
	clients := must(armmaintenance.NewClientFactory(subscription, credential, options))
	configurations, assignments := clients.NewConfigurationsClient(), clients.NewConfigurationAssignmentsClient()

	configuration := must(configurations.CreateOrUpdate(ctx, group, name, armmaintenance.Configuration{
		Location: to.Ptr("emulated"),
		Properties: &armmaintenance.ConfigurationProperties{
			MaintenanceScope: to.Ptr(armmaintenance.MaintenanceScopeHost),
			MaintenanceWindow: &armmaintenance.Window{
				StartDateTime: to.Ptr("2020-04-30 22:00"),
				Duration:      to.Ptr("05:00"),
				TimeZone:      to.Ptr("UTC"),
				RecurEvery:    to.Ptr("Day"),
			},
		},
	}, nil))
	assignment := armmaintenance.ConfigurationAssignment{
		Location:   to.Ptr("emulated"),
		Properties: &armmaintenance.ConfigurationAssignmentProperties{MaintenanceConfigurationID: configuration.ID},
	}
	must(assignments.CreateOrUpdate(ctx, group, provider, kind, vm, name, assignment, nil))
	assigned, pending := []string{}, []string{}
	for pages := assignments.NewListPager(group, provider, kind, vm, nil); pages.More(); {
		for _, each := range must(pages.NextPage(ctx)).Value {
			assigned = append(assigned, *each.Name)
		}
	}
	for pages := clients.NewUpdatesClient().NewListPager(group, provider, kind, vm, nil); pages.More(); {
		for _, each := range must(pages.NextPage(ctx)).Value {
			pending = append(pending, string(*each.ImpactType)+" "+string(*each.Status))
		}
	}
	updates := clients.NewApplyUpdatesClient()
	applied := must(updates.CreateOrUpdate(ctx, group, provider, kind, vm, nil))
	must(updates.Get(ctx, group, provider, kind, vm, *applied.Name, nil))
	must(assignments.Delete(ctx, group, provider, kind, vm, name, nil))
	must(configurations.Delete(ctx, group, name, nil))
	print(map[string]any{
		"window": *configuration.Properties.MaintenanceWindow.RecurEvery, "assigned": assigned, "pending": pending,
	})
}
