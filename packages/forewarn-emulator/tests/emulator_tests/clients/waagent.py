"""Check instance metadata with the Azure Linux agent's own code, and print what it says.

Run with waagent on the path: `PYTHONPATH=… python waagent.py`.
"""

import json


def main() -> None:
    """Do what the agent does with the service at 169.254.169.254 at each heartbeat."""
    from azurelinuxagent.common.protocol import (  # type: ignore[import-not-found]
        imds,
    )

    try:
        client = imds.get_imds_client()
    except TypeError:  # before 2.10 it could ask another address, too
        client = imds.get_imds_client("127.0.0.1")
    healthy, problem = client.validate()
    compute = client.get_compute()
    print(
        json.dumps(
            {
                "healthy": healthy,
                "problem": problem,
                "image": compute.image_info,
                "origin": compute.image_origin,
                "name": compute.name,
                "subscription": compute.subscriptionId,
                "size": compute.vmSize,
            }
        )
    )


if __name__ == "__main__":
    main()
