"""The judge's questions: rubrics, the quotation of untrusted text in them, and injected texts that try to break out."""
