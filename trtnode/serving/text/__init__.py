"""Models of text: what makes tokens of texts, and what a model's answers are.

Takes: the files of a tokenizer, and the sections of servable.yaml about texts.
Gives: arrays of token ids; the task, prompts and labels of a model.
Promises: texts at fault are refused before any is tokenized; nothing is downloaded, and no code of a folder runs.
Imports: schema.
"""
