// Nothing: its compilation is looked at (nvcc_inputs_test).
