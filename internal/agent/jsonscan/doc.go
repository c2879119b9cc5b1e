// Package jsonscan reads JSON in place: it validates all of it, copies nothing, and returns the raw
// values of the requested members. Most of an agent's lines is never read, so a line costs one pass
// for its outside and one more for each part that is opened. Values nest at most 512 deep; deeper
// ones are invalid. Raw values alias the caller's memory: clone what is to be kept.
package jsonscan
