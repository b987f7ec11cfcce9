"""What is to be expected of one matrix before there is a GPU: facts of its pattern, every format, the choice."""
