//! One file a command. The only room that reads configuration and prints.
