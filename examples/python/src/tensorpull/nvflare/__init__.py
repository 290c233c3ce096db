"""NVIDIA FLARE's models travel by tensorpull; FLARE decides which sites take part, when and for how long, as before.

    recipe.add_decomposers(["tensorpull.nvflare.decomposers.tensor.TensorDecomposer"])

It needs NVIDIA FLARE 2.9 at those sites that use it; others go on with FLARE's own chunks. Nothing is imported here, so that a process without FLARE or without torch may
look around.
"""
