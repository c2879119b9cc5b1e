// Package npm installs agents that are published as npm packages: one pinned tarball each, checked
// against its sum and unpacked into its own directory. Nothing is installed for the whole machine,
// no script of a package runs, and npm is only used to fetch it.
package npm
