"""Ways of forming a meta-gradient and of adapting to a task, behind one contract."""
