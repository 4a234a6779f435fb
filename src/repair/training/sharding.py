"""FSDP2: every process holds a shard of each weight, for models that do not fit one device."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from repair.training.checkpoint import whole
from repair.training.parallel import Group

_BLOCKS = ("resblocks", "layers", "layer", "blocks", "mix_blocks")  # lists of blocks: each is a unit of sharding


def sharded(module: nn.Module, group: Group) -> nn.Module:
    """A copy of `module` in shards. Gradients are summed over processes, not averaged, as everywhere here.

    Scalars (the logit scale) cannot be cut: they stay whole, and their gradients are summed with the others'.
    """
    cut = copy.deepcopy(module)
    device = cut.get_parameter("log_scale").device.type
    mesh = init_device_mesh(device, (group.world,))
    scalars = {parameter for parameter in cut.parameters() if parameter.ndim == 0}
    for name, part in cut.named_modules():
        if name.rpartition(".")[2] in _BLOCKS and isinstance(part, (nn.ModuleList, nn.Sequential)):
            for block in part:
                if sum(p.numel() for p in block.parameters()):
                    fully_shard(block, mesh=mesh)
    fully_shard(cut, mesh=mesh, ignored_params=scalars)
    for part in cut.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)  # gloo has no other
    for method in ("image_features", "text_features"):
        register_fsdp_forward_method(cut, method)
    return cut


def own_to_sum(module: nn.Module) -> Iterable[nn.Parameter]:
    """The parameters whose gradients are still to be summed over processes: those not in shards."""
    return [parameter for parameter in module.parameters() if not isinstance(parameter, DTensor)]


@torch.no_grad()
def clip(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """As `torch.nn.utils.clip_grad_norm_`, over shards and whole tensors together; takes all processes."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    squares = [whole(gradient.square().sum()) for gradient in gradients]
    norm = torch.stack(squares).sum().sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(float(factor))
    return norm


def whole_state(module: nn.Module) -> dict[str, Tensor]:
    """The module's state put together; takes all processes."""
    with torch.no_grad():
        return {name: whole(value).detach() for name, value in module.state_dict().items()}
