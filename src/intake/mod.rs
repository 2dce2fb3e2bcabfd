//! Turns what a forge says into queue calls: one reconcile, brought forward by a poll.
