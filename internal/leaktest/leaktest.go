// Package leaktest fails a package whose goroutines outlive its tests.
//
// It is go.uber.org/goleak with patience: that one looks for half a second, which
// goroutines that are about to end may not get a processor for while the tests of
// other packages run.
package leaktest

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines have to end.
const patience = time.Minute

// Main is what TestMain calls: it runs the tests, then looks for goroutines of
// theirs, and ends the process.
func Main(m goleak.TestingM) {
	code := m.Run()
	if code == 0 {
		if err := Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines outlive the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Find returns an error that describes the goroutines other than the caller's that do not end.
func Find() error { return find(patience) }

func find(patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; {
		err := goleak.Find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
