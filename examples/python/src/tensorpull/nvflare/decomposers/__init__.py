"""What a job names: one class for each kind of tensor."""
