"""A dataset small enough to train on in a test: the one that `gsf check` tries things on."""

from gsf.learn.corridor import LENGTH as LENGTH
from gsf.learn.corridor import N_ACTIONS as N_ACTIONS
from gsf.learn.corridor import OBS_SHAPE as OBS_SHAPE
from gsf.learn.corridor import write_dataset as write_dataset
from gsf.learn.corridor import write_labels as write_labels
