package agent

// Continuer is a Translator of captured streams that goes on behind the end of a turn: what an agent
// says later may be about what it has said in turns before, such as that it is taken back.
type Continuer interface {
	// Continue returns the translator of the turn that follows.
	Continue() Translator
}

// NextTurn returns the translator of the turn that follows in a captured stream, behind the one that t
// has ended.
func NextTurn(a Adapter, t Translator) (Translator, error) {
	if c, ok := t.(Continuer); ok {
		return c.Continue(), nil
	}
	return a.NewTranslator(RunContext{}, nil)
}
