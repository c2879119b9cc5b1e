// Package image has the records of the images at a provider: snapshots of sandboxes and base
// images.
//
// An image costs money and outlives the process that made it, so none may be lost: an [Intent] is
// recorded before an image is made, and a reconciler finds images whose ids were lost, the exit
// images of ended sandboxes, and images that must be renewed or deleted.
package image
