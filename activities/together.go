package activities

import "sync"

// together runs functions at the same time, waits for all of them, and returns the error of the first in order that failed. Statements
// that do not depend on each other cost one round trip so.
func together(do ...func() error) error {
	errs := make([]error, len(do))
	var others sync.WaitGroup
	for i, f := range do[1:] {
		others.Go(func() { errs[i+1] = f() })
	}
	errs[0] = do[0]()
	others.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
