"""Everything that runs a method: training, evaluation, and the files they leave behind."""
