package enginetest

import "context"

// Leaving returns the context of a caller that leaves at the worst moment: it ends as soon as a call
// begins to wait for it, when what the call asked for is on its way and cannot be stopped. Values
// come from ctx.
func Leaving(ctx context.Context) context.Context { return &leaving{ctx, make(chan struct{})} }

type leaving struct {
	context.Context
	left chan struct{}
}

func (l *leaving) Done() <-chan struct{} {
	if l.Err() == nil {
		close(l.left)
	}
	return l.left
}

func (l *leaving) Err() error {
	select {
	case <-l.left:
		return context.Canceled
	default:
		return nil
	}
}
