// Package npm installs agents that are published as npm packages: one pinned tarball each, checked
// against its sum and unpacked into a directory of its own. Nothing is installed for the whole
// machine, no script of a package runs, and npm is needed to fetch it only.
package npm
