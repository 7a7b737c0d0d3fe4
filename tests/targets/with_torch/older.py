"""Makes torch one that has no hooks of process groups, as those before 2.14."""

import torch.distributed as dist


def hide_hooks():
    for kind in ("pre", "post"):
        for what in ("register", "unregister"):
            name = f"{what}_{kind}_hook"
            if hasattr(dist.ProcessGroup, name):
                delattr(dist.ProcessGroup, name)
