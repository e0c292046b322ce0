"""From LLVM IR to PTX or SPIR-V: what the process of its own does, which imports nothing else."""

from __future__ import annotations

import base64
import json


def translate(text: str) -> str:
    """Return code as base64, of a request as JSON: the IR, the triple, the CPU and its features.

    `passes` says whether LLVM's passes run for SPIR-V, too: OpenCL of a CPU refuses some code
    without.
    """
    import llvmlite.binding as llvm

    asked = json.loads(text)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(asked["code"])
    module.verify()
    nvptx = asked["triple"].startswith("nvptx")
    machine = llvm.Target.from_triple(asked["triple"]).create_target_machine(
        cpu=asked["cpu"], features=asked["features"], opt=3 if nvptx else 2
    )
    if nvptx:
        module.data_layout = str(machine.target_data)
    elif not asked["passes"]:
        return base64.b64encode(machine.emit_object(module)).decode()
    options = llvm.create_pipeline_tuning_options(speed_level=3 if nvptx else 1)
    options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    if not nvptx:
        return base64.b64encode(machine.emit_object(module)).decode()
    return base64.b64encode(machine.emit_assembly(module).encode()).decode()
