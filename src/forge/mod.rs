//! Where issues and pull requests live: GitHub, or a repository on this disk.
