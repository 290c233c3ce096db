"""What a job names where every site has this package: one class for each kind of tensor. `tensorpull.nvflare.add_to` names another one, which is one of these where it can be."""
