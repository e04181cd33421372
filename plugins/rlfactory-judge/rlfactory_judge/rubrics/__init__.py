"""What the judge is asked: rubrics, how untrusted text is quoted in them, and texts that try to break out."""
