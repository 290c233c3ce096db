"""What tests/awake.py breaks of this satellite, as in tests/breakages.py."""

BREAKAGES = [
    ("satellites/proofs/blake3.hpp", "flags | (blocks_ == 0 ? detail::blake3::chunk_start : 0)", "flags", "satellites/proofs/blake3", "*published_values*"),
    ("satellites/proofs/blake3.hpp", "    all.merge(before);\n", "", "satellites/proofs/blake3", "*published_values*"),
    ("satellites/proofs/blake3.hpp", "(at == 0 ? 1 : 0)", "0", "satellites/proofs/blake3", "*whole_chunks*"),
    ("satellites/proofs/blake3_lanes.hpp", "high[i] = static_cast<std::uint32_t>((first + i) >> 32);", "high[i] = 0;", "satellites/proofs/blake3", "*Each_vector_width*"),
    ("satellites/proofs/proof_tree.hpp", "values.size() != groups || ", "", "satellites/proofs/proof_tree", "*No_other_values*"),
    ("satellites/proofs/proof_tree.hpp", "|| detail::root_over(values) != root", "", "satellites/proofs/proof_tree", "*No_other_values*"),
    ("satellites/proofs/proof_tree.hpp", "values_.size() == 1 ? hash.value() : hash.chaining_value()", "hash.chaining_value()", "satellites/proofs/proved_pull", "*one_group*"),
    ("satellites/proofs/proved.hpp", "if (ends && !holds()) return", "if (false) return", "satellites/proofs/proved_pull", "*No_more_than_a_group*"),
    ("satellites/proofs/proved.hpp", "|| !by.holds(i, one)", "", "satellites/proofs/proved_pull", "*cut_off*"),
    ("satellites/proofs/proved.hpp", "if (why.code == errc::digest_mismatch) why.code = errc::wrong_payload;", "", "satellites/proofs/proved_pull", "*cannot_undo*"),
    ("satellites/proofs/proved.hpp", "std::min(length, end_of_group(offset) - offset)", "length", "satellites/proofs/proved_pull", "*cannot_undo*"),
    ("satellites/proofs/proved.hpp", "if (d.image_bytes != by_.image_bytes()) return failure(errc::digest_mismatch, d.image_bytes);", "", "satellites/proofs/proved_pull", "*of_another_length*"),
    ("satellites/proofs/proved_pull.hpp", "if (done.error().code == errc::digest_mismatch) out.wrong |=", "out.wrong |=", "satellites/proofs/proved_pull", "*is_no_liar*"),
    ("satellites/proofs/proved_pull.hpp", "if (how.wrong != nullptr) *how.wrong = out.wrong;", "", "satellites/proofs/proved_pull", "*All_lie*"),
    ("satellites/proofs/proof_tree.hpp", "derived_id(\"tpproof\", model, 0)", "derived_id(\"tpproof\", {model.id}, 0)", "satellites/proofs/proof_tree", "ProofTreeId*"),
    ("satellites/proofs/signed_reference.hpp", "if (revoked) return", "if (!good) return", "satellites/proofs/signed_reference", "*refused_by_name*"),
    ("satellites/proofs/signed_reference.hpp", "if (k.federation != c.federation) continue;", "", "satellites/proofs/signed_reference", "*refused_by_name*"),
    ("satellites/proofs/signed_reference.hpp", "demands.now >= c.expires", "demands.now > c.expires", "satellites/proofs/signed_reference", "*refused_by_name*"),
]
