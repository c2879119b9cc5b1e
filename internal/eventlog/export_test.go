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
