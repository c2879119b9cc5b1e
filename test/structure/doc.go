// Package structure checks statements about the whole module: which packages import which, how the files of
// adapters are named, and that the tests that the documents name exist. It contains tests only.
package structure
