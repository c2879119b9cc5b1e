// Package structure checks statements about the whole module: which packages import which, and that the tests that the
// documents name exist. It contains tests only.
package structure
