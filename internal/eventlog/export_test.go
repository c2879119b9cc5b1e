package eventlog

// Memory is the memory of the tails.
func (f *Follower) Memory() int {
	f.topics.mu.Lock()
	defer f.topics.mu.Unlock()
	return f.topics.bytes
}

// Topics is the number of followed sessions.
func (f *Follower) Topics() int {
	f.topics.mu.Lock()
	defer f.topics.mu.Unlock()
	return len(f.topics.byID)
}

// Prefetching reports whether pages are counted as read ahead.
func (f *Follower) Prefetching() bool {
	all := int64(f.options.PrefetchBytes)
	if !f.prefetch.TryAcquire(all) {
		return true
	}
	f.prefetch.Release(all)
	return false
}
