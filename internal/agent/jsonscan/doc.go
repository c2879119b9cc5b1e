// Package jsonscan reads JSON in place: it checks all of it, copies nothing and hands over the raw
// values of the members that somebody asks for. The lines of agents are mostly bulk that nobody asks
// for, so a line costs one pass for its outside and one more for each part that is opened. Values
// nest at most 512 deep; what is deeper counts as broken. Raw values are the caller's memory: what is
// to be kept is cloned.
package jsonscan
