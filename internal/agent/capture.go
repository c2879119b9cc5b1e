package agent

// Continuer is a Translator of captured streams that continues after the end of a turn: later output
// of an agent may concern earlier turns, for example that one was reverted.
type Continuer interface {
	// Continue returns the translator of the turn that follows.
	Continue() Translator
}

// NextTurn returns the translator of the next turn in a captured stream, after the turn that t has
// ended.
func NextTurn(a Adapter, t Translator) (Translator, error) {
	if c, ok := t.(Continuer); ok {
		return c.Continue(), nil
	}
	return a.NewTranslator(RunContext{}, nil)
}
