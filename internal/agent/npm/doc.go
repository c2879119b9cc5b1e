// Package npm installs agents that are published as npm packages: one pinned tarball each, verified
// against its checksum and unpacked into its own directory. Nothing is installed system-wide, no
// script of a package runs, and npm is only used to download it.
package npm
