"""The nouns, the causes of endings, metrics and checks; imports nothing of ours."""
