// Package image has what is stored of the images at a provider: snapshots of sandboxes and base images.
//
// An image costs money and outlives whatever made it, so none may be forgotten: an [Intent] is recorded before an image
// is made, and a reconciler finds those whose ids were lost, the last images of ended sandboxes, and those that must be
// renewed or deleted.
package image
