package sim

// Bugs in the engine for several nodes. TestPlanted looks for them in simulations of two and three
// nodes.
func init() {
	bugs = append(bugs,
		bug{"jetstream: a write without an answer is taken for a write of another node", jetstreamDir + "store.go",
			"	if len(found) < len(g.Records) || found[0].Group != g.ID {\n",
			"	if len(found) < len(g.Records) || found[0].Group != g.ID || PLANTED {\n"},
		bug{"jetstream: a write is not conditional", jetstreamDir + "group.go",
			"	if g.Seal(); len(g.Messages) > 0 {\n",
			"	if g.Seal(); len(g.Messages) > 0 && !(PLANTED) {\n"},
		bug{"jetstream: decisions are not taken back", jetstreamDir + "store.go",
			"		w.l.follower.Rewind()\n		return cause\n",
			"		if !(PLANTED) {\n			w.l.follower.Rewind()\n		}\n		return cause\n"},
		bug{"jetstream: catching up does not wait for the fence", jetstreamDir + "line/fence.go",
			"	if err == nil {\n		err = l.Reach(ctx, at)\n	}\n",
			"	if err == nil && !(PLANTED) {\n		err = l.Reach(ctx, at)\n	}\n"},
		bug{"jetstream: a wrong clock counts", jetstreamDir + "nodes/clock.go",
			"	if ahead = own - median; ahead.Abs() > maxSkew {\n",
			"	if PLANTED {\n		median = own\n	}\n	if ahead = own - median; ahead.Abs() > maxSkew {\n"},
		bug{"jetstream: lost deliveries go unnoticed", jetstreamDir + "line/line.go",
			"		if delivered++; m.Count != delivered {\n",
			"		if delivered++; m.Count != delivered && PLANTED {\n			delivered = m.Count\n		}\n		if m.Count != delivered {\n"},
		bug{"jetstream: a refusal because of a write in process is final", jetstreamDir + "wire/client.go",
			"		return 0, ErrInProcess\n",
			"		if PLANTED {\n			return 0, ErrRefused\n		}\n		return 0, ErrInProcess\n"},
		bug{"jetstream: subscribers of an expired stream are told that it was deleted", hubDir + "delete.go",
			"	if due != nil {\n		remove",
			"	if due != nil && !(PLANTED) {\n		remove"},
		bug{"jetstream: a revocation does not end the subscriptions of the key", accessDir + "access.go",
			"	if revoked {\n		e.grant.end()\n",
			"	if revoked {\n		if PLANTED {\n			e.grant = newGrant(&record, a.demo)\n		}\n		e.grant.end()\n"},
		bug{"jetstream: a node that is cut off answers requests", apiDir + "api.go",
			"	case c.h.Lease != nil && !c.route.public() && c.h.Lease() != nil:\n",
			"	case c.h.Lease != nil && !c.route.public() && c.h.Lease() != nil && !(PLANTED):\n"},
	)
}
