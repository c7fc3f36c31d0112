"""One thread per test process: tests run in parallel, and two torch threads on a busy core are slower than one."""

import hypothesis
import torch

hypothesis.settings.register_profile("shared-machine", deadline=None)
hypothesis.settings.load_profile("shared-machine")
torch.set_num_threads(1)
