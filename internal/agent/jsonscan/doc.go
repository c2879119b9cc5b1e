// Package jsonscan reads JSON in place: it validates all of it, copies nothing, and returns the raw
// values of the requested members. Most parts of an agent's lines are never read, so a line costs
// one pass for its outermost level and one more for each part that is opened. Values may be nested
// at most 512 deep; deeper ones are invalid. Raw values alias the caller's memory: clone values
// that are kept.
package jsonscan
