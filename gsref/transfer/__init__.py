"""Is a pretrained model worth its pretraining on another task of the same pattern?  Tasks, training, errors, claims.

Source: derivations/09_transfer.md.
"""
