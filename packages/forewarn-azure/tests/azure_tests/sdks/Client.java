// What a user does with Azure's SDK for Java: `Client.java ARM SUBSCRIPTION GROUP`.
// Prints the VMs before and after, or how many seconds a credential takes to find no identity.
import com.azure.core.credential.TokenCredential;
import com.azure.core.credential.TokenRequestContext;
import com.azure.core.management.AzureEnvironment;
import com.azure.core.management.profile.AzureProfile;
import com.azure.identity.DefaultAzureCredentialBuilder;
import com.azure.resourcemanager.compute.ComputeManager;
import java.util.HashMap;
import java.util.List;
import java.util.TreeSet;

class Client {
    static double secondsWithoutIdentity(TokenCredential credential, String scope) {
        long began = System.nanoTime();
        try {
            credential.getTokenSync(new TokenRequestContext().addScopes(scope));
            return 0;
        } catch (RuntimeException refused) {
            return (System.nanoTime() - began) / 1e9;
        }
    }

    static String names(ComputeManager compute, String group) {
        var found = new TreeSet<String>();
        compute.virtualMachines().listByResourceGroup(group).forEach(vm -> found.add(vm.name()));
        var set = compute.virtualMachineScaleSets().getByResourceGroup(group, "web");
        set.virtualMachines().list().forEach(vm -> found.add(vm.name()));
        return "[\"" + String.join("\",\"", found) + "\"]";
    }

    public static void main(String[] words) {
        String arm = words[0], subscription = words[1], group = words[2];
        String scope = arm + "/.default";
        var credential = new DefaultAzureCredentialBuilder().build();
        secondsWithoutIdentity(credential, scope); // the first one also loads code
        double seconds = secondsWithoutIdentity(credential, scope);
        if (seconds > 0) {
            System.out.printf("{\"no_identity_s\":%f}%n", seconds);
            return;
        }

        var endpoints = new HashMap<>(AzureEnvironment.AZURE.getEndpoints());
        endpoints.put("resourceManagerEndpointUrl", arm + "/");
        endpoints.put("managementEndpointUrl", arm + "/");
        var profile = new AzureProfile("adfs", subscription, new AzureEnvironment(endpoints));
        var compute = ComputeManager.authenticate(credential, profile);
        String before = names(compute, group);
        var db = compute.virtualMachines().getByResourceGroup(group, "db");
        db.restart();
        db.redeploy();
        compute.virtualMachines().getByResourceGroup(group, "spot").simulateEviction();
        var web = compute.virtualMachineScaleSets().getByResourceGroup(group, "web");
        web.update().withCapacity(3).apply();
        var instance = web.virtualMachines().getInstance("1");
        instance.restart();
        instance.redeploy();
        web.virtualMachines().simulateEviction("0");
        instance.delete();
        compute.virtualMachines().deleteById(db.id());
        System.out.printf("{\"before\":%s,\"after\":%s}%n", before, names(compute, group));
        System.exit(0); // the SDK's threads would keep it for a while
    }
}
