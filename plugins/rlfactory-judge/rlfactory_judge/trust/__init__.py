"""How far a judge can be trusted: measured on labelled examples, by hand or before a run."""
