package eventlog

// Memory is what the tails take.
func (f *Follower) Memory() int {
	f.topics.mu.Lock()
	defer f.topics.mu.Unlock()
	return f.topics.bytes
}

// Topics is the number of sessions that are followed.
func (f *Follower) Topics() int {
	f.topics.mu.Lock()
	defer f.topics.mu.Unlock()
	return len(f.topics.byID)
}
