"""Train the how-to's PyTorch model again in one process, without any event, up to a checkpoint.

`python3 torch_replay.py EXAMPLE CHECKPOINT WORLD` ends with 1 if the weights differ.
"""

import runpy
import sys

import torch


def main(example: str, checkpoint: str, world: int) -> int:
    """Compare the weights, and print the steps and the difference."""
    torch.set_num_threads(1)
    parts = runpy.run_path(example)
    form = torch.load(checkpoint)
    model = parts["network"]()
    optimizer = parts["descend"](model)
    for step in range(form["step"]):
        optimizer.zero_grad()
        for rank in range(world):
            inputs, targets = parts["batch"](step, rank, world)
            (torch.nn.functional.mse_loss(model(inputs), targets) / world).backward()
        optimizer.step()
    pairs = zip(model.state_dict().values(), form["model"].values(), strict=True)
    apart = max(float((one - other).abs().max()) for one, other in pairs)
    print(f"{form['step']} steps, weights differ by {apart:g}")
    return int(apart > 1e-3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
