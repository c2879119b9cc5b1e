package activities

import "sync"

// inParallel runs functions concurrently, waits for all of them, and returns the error of the first
// in order that failed. Independent statements then take the time of one round trip.
func inParallel(do ...func() error) error {
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
