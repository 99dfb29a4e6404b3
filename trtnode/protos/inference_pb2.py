"""Messages of inference.proto. Written by protos/generate.py; do not edit."""

from trtnode.protos import private_pool

DESCRIPTOR = private_pool.load_file(
    b'\n\x0finference.proto\x12\tinference"\x13\n\x11ServerLiveRequest"(\n\x12ServerLiveResponse\x12'
    b'\x12\n\x04live\x18\x01 \x01(\x08R\x04live"\x14\n\x12ServerReadyRequest"+\n\x13ServerReadyResponse\x12\x14\n\x05read'
    b'y\x18\x01 \x01(\x08R\x05ready"A\n\x11ModelReadyRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\t'
    b'R\x07version"*\n\x12ModelReadyResponse\x12\x14\n\x05ready\x18\x01 \x01(\x08R\x05ready"\x17\n\x15ServerMetadataR'
    b'equest"f\n\x16ServerMetadataResponse\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07v'
    b'ersion\x12\x1e\n\nextensions\x18\x03 \x03(\tR\nextensions"D\n\x14ModelMetadataRequest\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"\xcf\x02\n\x15ModelMetadataResponse\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x1a\n\x08versions\x18\x02 \x03(\tR\x08versions\x12\x1a\n\x08platform\x18\x03 \x01(\tR\x08platform\x12G\n\x06in'
    b'puts\x18\x04 \x03(\x0b2/.inference.ModelMetadataResponse.TensorMetadataR\x06inputs\x12I\n\x07o'
    b'utputs\x18\x05 \x03(\x0b2/.inference.ModelMetadataResponse.TensorMetadataR\x07outputs\x1aV'
    b'\n\x0eTensorMetadata\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shap'
    b'e\x18\x03 \x03(\x03R\x05shape"\xd7\x01\n\x0eInferParameter\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12!\n\x0bin'
    b't64_param\x18\x02 \x01(\x03H\x00R\nint64Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParam\x12#\n\x0cdo'
    b'uble_param\x18\x04 \x01(\x01H\x00R\x0bdoubleParam\x12#\n\x0cuint64_param\x18\x05 \x01(\x04H\x00R\x0buint64ParamB\x12\n\x10'
    b'parameter_choice"\xc3\x02\n\x13InferTensorContents\x12#\n\rbool_contents\x18\x01 \x03(\x08R\x0cboolCon'
    b'tents\x12!\n\x0cint_contents\x18\x02 \x03(\x05R\x0bintContents\x12%\n\x0eint64_contents\x18\x03 \x03(\x03R\rint64C'
    b"ontents\x12#\n\ruint_contents\x18\x04 \x03(\rR\x0cuintContents\x12'\n\x0fuint64_contents\x18\x05 \x03(\x04R\x0eu"
    b'int64Contents\x12#\n\rfp32_contents\x18\x06 \x03(\x02R\x0cfp32Contents\x12#\n\rfp64_contents\x18\x07 \x03('
    b'\x01R\x0cfp64Contents\x12%\n\x0ebytes_contents\x18\x08 \x03(\x0cR\rbytesContents"\x9d\x08\n\x11ModelInferReq'
    b'uest\x12\x1d\n\nmodel_name\x18\x01 \x01(\tR\tmodelName\x12#\n\rmodel_version\x18\x02 \x01(\tR\x0cmodelVersion'
    b'\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12L\n\nparameters\x18\x04 \x03(\x0b2,.inference.ModelInferRequest.Param'
    b'etersEntryR\nparameters\x12E\n\x06inputs\x18\x05 \x03(\x0b2-.inference.ModelInferRequest.Inf'
    b'erInputTensorR\x06inputs\x12Q\n\x07outputs\x18\x06 \x03(\x0b27.inference.ModelInferRequest.Inf'
    b'erRequestedOutputTensorR\x07outputs\x12,\n\x12raw_input_contents\x18\x07 \x03(\x0cR\x10rawInputCo'
    b'ntents\x1a\xcd\x02\n\x10InferInputTensor\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datat'
    b'ype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12]\n\nparameters\x18\x04 \x03(\x0b2=.inference.ModelInferRequ'
    b'est.InferInputTensor.ParametersEntryR\nparameters\x12:\n\x08contents\x18\x05 \x01(\x0b2\x1e.inf'
    b'erence.InferTensorContentsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03ke'
    b'y\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01\x1a\xf3\x01\n\x1aInferRequeste'
    b'dOutputTensor\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12g\n\nparameters\x18\x02 \x03(\x0b2G.inference.ModelI'
    b'nferRequest.InferRequestedOutputTensor.ParametersEntryR\nparameters\x1aX\n\x0fPa'
    b'rametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParamete'
    b'rR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.infer'
    b'ence.InferParameterR\x05value:\x028\x01"\xdf\x05\n\x12ModelInferResponse\x12\x1d\n\nmodel_name\x18\x01 \x01('
    b'\tR\tmodelName\x12#\n\rmodel_version\x18\x02 \x01(\tR\x0cmodelVersion\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12M\n\npar'
    b'ameters\x18\x04 \x03(\x0b2-.inference.ModelInferResponse.ParametersEntryR\nparameters'
    b'\x12I\n\x07outputs\x18\x05 \x03(\x0b2/.inference.ModelInferResponse.InferOutputTensorR\x07outp'
    b'uts\x12.\n\x13raw_output_contents\x18\x06 \x03(\x0cR\x11rawOutputContents\x1a\xd0\x02\n\x11InferOutputTenso'
    b'r\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12'
    b'_\n\nparameters\x18\x04 \x03(\x0b2?.inference.ModelInferResponse.InferOutputTensor.Par'
    b'ametersEntryR\nparameters\x12:\n\x08contents\x18\x05 \x01(\x0b2\x1e.inference.InferTensorConten'
    b'tsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.infer'
    b'ence.InferParameterR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05v'
    b'alue\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01"\x85\x01\n\x18ModelStreamInferRes'
    b'ponse\x12#\n\rerror_message\x18\x01 \x01(\tR\x0cerrorMessage\x12D\n\x0einfer_response\x18\x02 \x01(\x0b2\x1d.inf'
    b'erence.ModelInferResponseR\rinferResponse"B\n\x12ModelConfigRequest\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"E\n\x13ModelConfigResponse\x12.\n\x06config\x18\x01 '
    b'\x01(\x0b2\x16.inference.ModelConfigR\x06config"\xc0\x01\n\x10ModelRateLimiter\x12B\n\tresources\x18\x01 '
    b'\x03(\x0b2$.inference.ModelRateLimiter.ResourceR\tresources\x12\x1a\n\x08priority\x18\x02 \x01(\rR\x08'
    b'priority\x1aL\n\x08Resource\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x16\n\x06global\x18\x02 \x01(\x08R\x06global\x12\x14\n\x05coun'
    b't\x18\x03 \x01(\rR\x05count"\xed\x04\n\x12ModelInstanceGroup\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x14\n\x05count\x18\x02 \x01(\x05'
    b'R\x05count\x12\x12\n\x04gpus\x18\x03 \x03(\x05R\x04gpus\x126\n\x04kind\x18\x04 \x01(\x0e2".inference.ModelInstanceGroup'
    b'.KindR\x04kind\x12\x18\n\x07profile\x18\x05 \x03(\tR\x07profile\x12>\n\x0crate_limiter\x18\x06 \x01(\x0b2\x1b.inference.'
    b'ModelRateLimiterR\x0brateLimiter\x12\x18\n\x07passive\x18\x07 \x01(\x08R\x07passive\x12Z\n\x11secondary_dev'
    b'ices\x18\x08 \x03(\x0b2-.inference.ModelInstanceGroup.SecondaryDeviceR\x10secondaryDevi'
    b'ces\x12\x1f\n\x0bhost_policy\x18\t \x01(\tR\nhostPolicy\x1a\xac\x01\n\x0fSecondaryDevice\x12U\n\x04kind\x18\x01 \x01(\x0e2A'
    b'.inference.ModelInstanceGroup.SecondaryDevice.SecondaryDeviceKindR\x04kind\x12'
    b'\x1b\n\tdevice_id\x18\x02 \x01(\x03R\x08deviceId"%\n\x13SecondaryDeviceKind\x12\x0e\n\nKIND_NVDLA\x10\x00"A\n\x04K'
    b'ind\x12\r\n\tKIND_AUTO\x10\x00\x12\x0c\n\x08KIND_GPU\x10\x01\x12\x0c\n\x08KIND_CPU\x10\x02\x12\x0e\n\nKIND_MODEL\x10\x03"*\n\x12ModelT'
    b'ensorReshape\x12\x14\n\x05shape\x18\x01 \x03(\x03R\x05shape"\xbe\x02\n\x12ModelVersionPolicy\x12>\n\x06latest\x18\x01 \x01('
    b'\x0b2$.inference.ModelVersionPolicy.LatestH\x00R\x06latest\x125\n\x03all\x18\x02 \x01(\x0b2!.inferen'
    b'ce.ModelVersionPolicy.AllH\x00R\x03all\x12D\n\x08specific\x18\x03 \x01(\x0b2&.inference.ModelVers'
    b'ionPolicy.SpecificH\x00R\x08specific\x1a+\n\x06Latest\x12!\n\x0cnum_versions\x18\x01 \x01(\rR\x0bnumVersi'
    b'ons\x1a\x05\n\x03All\x1a&\n\x08Specific\x12\x1a\n\x08versions\x18\x01 \x03(\x03R\x08versionsB\x0f\n\rpolicy_choice"\xba\x03\n\n'
    b'ModelInput\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x120\n\tdata_type\x18\x02 \x01(\x0e2\x13.inference.DataTypeR\x08'
    b'dataType\x124\n\x06format\x18\x03 \x01(\x0e2\x1c.inference.ModelInput.FormatR\x06format\x12\x12\n\x04dims\x18\x04'
    b' \x03(\x03R\x04dims\x127\n\x07reshape\x18\x05 \x01(\x0b2\x1d.inference.ModelTensorReshapeR\x07reshape\x12&\n\x0fi'
    b's_shape_tensor\x18\x06 \x01(\x08R\risShapeTensor\x12,\n\x12allow_ragged_batch\x18\x07 \x01(\x08R\x10allowRa'
    b'ggedBatch\x12\x1a\n\x08optional\x18\x08 \x01(\x08R\x08optional\x124\n\x17is_non_linear_format_io\x18\t \x01(\x08R\x13'
    b'isNonLinearFormatIo";\n\x06Format\x12\x0f\n\x0bFORMAT_NONE\x10\x00\x12\x0f\n\x0bFORMAT_NHWC\x10\x01\x12\x0f\n\x0bFORMA'
    b'T_NCHW\x10\x02"\xa5\x02\n\x0bModelOutput\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x120\n\tdata_type\x18\x02 \x01(\x0e2\x13.infere'
    b'nce.DataTypeR\x08dataType\x12\x12\n\x04dims\x18\x03 \x03(\x03R\x04dims\x12%\n\x0elabel_filename\x18\x04 \x01(\tR\rlabe'
    b'lFilename\x127\n\x07reshape\x18\x05 \x01(\x0b2\x1d.inference.ModelTensorReshapeR\x07reshape\x12&\n\x0fis'
    b'_shape_tensor\x18\x06 \x01(\x08R\risShapeTensor\x124\n\x17is_non_linear_format_io\x18\x07 \x01(\x08R\x13isN'
    b'onLinearFormatIo"\x82\x03\n\nBatchInput\x12.\n\x04kind\x18\x01 \x01(\x0e2\x1a.inference.BatchInput.Kin'
    b'dR\x04kind\x12\x1f\n\x0btarget_name\x18\x02 \x03(\tR\ntargetName\x120\n\tdata_type\x18\x03 \x01(\x0e2\x13.inference.'
    b'DataTypeR\x08dataType\x12!\n\x0csource_input\x18\x04 \x03(\tR\x0bsourceInput"\xcd\x01\n\x04Kind\x12\x17\n\x13BATCH_'
    b'ELEMENT_COUNT\x10\x00\x12#\n\x1fBATCH_ACCUMULATED_ELEMENT_COUNT\x10\x01\x12-\n)BATCH_ACCUMULATE'
    b'D_ELEMENT_COUNT_WITH_ZERO\x10\x02\x12$\n BATCH_MAX_ELEMENT_COUNT_AS_SHAPE\x10\x03\x12\x14\n\x10BAT'
    b'CH_ITEM_SHAPE\x10\x04\x12\x1c\n\x18BATCH_ITEM_SHAPE_FLATTEN\x10\x05"\xae\x01\n\x0bBatchOutput\x12\x1f\n\x0btarget_'
    b'name\x18\x01 \x03(\tR\ntargetName\x12/\n\x04kind\x18\x02 \x01(\x0e2\x1b.inference.BatchOutput.KindR\x04kind\x12'
    b'!\n\x0csource_input\x18\x03 \x03(\tR\x0bsourceInput"*\n\x04Kind\x12"\n\x1eBATCH_SCATTER_WITH_INPUT_S'
    b'HAPE\x10\x00"\xaa\x02\n\x10ModelQueuePolicy\x12P\n\x0etimeout_action\x18\x01 \x01(\x0e2).inference.ModelQue'
    b'uePolicy.TimeoutActionR\rtimeoutAction\x12@\n\x1cdefault_timeout_microseconds\x18\x02 '
    b'\x01(\x04R\x1adefaultTimeoutMicroseconds\x124\n\x16allow_timeout_override\x18\x03 \x01(\x08R\x14allowTi'
    b'meoutOverride\x12$\n\x0emax_queue_size\x18\x04 \x01(\rR\x0cmaxQueueSize"&\n\rTimeoutAction\x12\n\n\x06'
    b'REJECT\x10\x00\x12\t\n\x05DELAY\x10\x01"\xb7\x04\n\x14ModelDynamicBatching\x120\n\x14preferred_batch_size\x18\x01 \x03'
    b'(\x05R\x12preferredBatchSize\x12?\n\x1cmax_queue_delay_microseconds\x18\x02 \x01(\x04R\x19maxQueueDe'
    b"layMicroseconds\x12+\n\x11preserve_ordering\x18\x03 \x01(\x08R\x10preserveOrdering\x12'\n\x0fpriority"
    b'_levels\x18\x04 \x01(\x04R\x0epriorityLevels\x124\n\x16default_priority_level\x18\x05 \x01(\x04R\x14defaultPr'
    b'iorityLevel\x12M\n\x14default_queue_policy\x18\x06 \x01(\x0b2\x1b.inference.ModelQueuePolicyR\x12'
    b'defaultQueuePolicy\x12l\n\x15priority_queue_policy\x18\x07 \x03(\x0b28.inference.ModelDynam'
    b'icBatching.PriorityQueuePolicyEntryR\x13priorityQueuePolicy\x1ac\n\x18PriorityQueu'
    b'ePolicyEntry\x12\x10\n\x03key\x18\x01 \x01(\x04R\x03key\x121\n\x05value\x18\x02 \x01(\x0b2\x1b.inference.ModelQueuePoli'
    b'cyR\x05value:\x028\x01"\xab\x0e\n\x15ModelSequenceBatching\x12C\n\x1emax_sequence_idle_microsecond'
    b's\x18\x01 \x01(\x04R\x1bmaxSequenceIdleMicroseconds\x12R\n\rcontrol_input\x18\x02 \x03(\x0b2-.inference.'
    b'ModelSequenceBatching.ControlInputR\x0ccontrolInput\x12I\n\x06direct\x18\x03 \x01(\x0b2/.infer'
    b'ence.ModelSequenceBatching.StrategyDirectH\x00R\x06direct\x12I\n\x06oldest\x18\x04 \x01(\x0b2/.in'
    b'ference.ModelSequenceBatching.StrategyOldestH\x00R\x06oldest\x12<\n\x05state\x18\x05 \x03(\x0b2&.'
    b'inference.ModelSequenceBatching.StateR\x05state\x12-\n\x12iterative_sequence\x18\x06 \x01(\x08'
    b'R\x11iterativeSequence\x1a\xef\x02\n\x07Control\x12A\n\x04kind\x18\x01 \x01(\x0e2-.inference.ModelSequenceB'
    b'atching.Control.KindR\x04kind\x12(\n\x10int32_false_true\x18\x02 \x03(\x05R\x0eint32FalseTrue\x12&\n\x0f'
    b'fp32_false_true\x18\x03 \x03(\x02R\rfp32FalseTrue\x120\n\tdata_type\x18\x04 \x01(\x0e2\x13.inference.Data'
    b'TypeR\x08dataType\x12&\n\x0fbool_false_true\x18\x05 \x03(\x08R\rboolFalseTrue"u\n\x04Kind\x12\x1a\n\x16CONTRO'
    b'L_SEQUENCE_START\x10\x00\x12\x1a\n\x16CONTROL_SEQUENCE_READY\x10\x01\x12\x18\n\x14CONTROL_SEQUENCE_END\x10\x02'
    b'\x12\x1b\n\x17CONTROL_SEQUENCE_CORRID\x10\x03\x1af\n\x0cControlInput\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12B\n\x07con'
    b'trol\x18\x02 \x03(\x0b2(.inference.ModelSequenceBatching.ControlR\x07control\x1a\xb4\x01\n\x0cInitia'
    b'lState\x120\n\tdata_type\x18\x01 \x01(\x0e2\x13.inference.DataTypeR\x08dataType\x12\x12\n\x04dims\x18\x02 \x03(\x03R\x04'
    b'dims\x12\x1d\n\tzero_data\x18\x03 \x01(\x08H\x00R\x08zeroData\x12\x1d\n\tdata_file\x18\x04 \x01(\tH\x00R\x08dataFile\x12\x12\n\x04na'
    b'me\x18\x05 \x01(\tR\x04nameB\x0c\n\nstate_data\x1a\xd8\x02\n\x05State\x12\x1d\n\ninput_name\x18\x01 \x01(\tR\tinputName\x12\x1f\n'
    b'\x0boutput_name\x18\x02 \x01(\tR\noutputName\x120\n\tdata_type\x18\x03 \x01(\x0e2\x13.inference.DataTypeR\x08'
    b'dataType\x12\x12\n\x04dims\x18\x04 \x03(\x03R\x04dims\x12R\n\rinitial_state\x18\x05 \x03(\x0b2-.inference.ModelSeq'
    b'uenceBatching.InitialStateR\x0cinitialState\x12E\n use_same_buffer_for_input_ou'
    b'tput\x18\x06 \x01(\x08R\x1buseSameBufferForInputOutput\x12.\n\x13use_growable_memory\x18\x07 \x01(\x08R\x11us'
    b'eGrowableMemory\x1a\x8b\x01\n\x0eStrategyDirect\x12?\n\x1cmax_queue_delay_microseconds\x18\x01 \x01(\x04'
    b'R\x19maxQueueDelayMicroseconds\x128\n\x18minimum_slot_utilization\x18\x02 \x01(\x02R\x16minimumSl'
    b'otUtilization\x1a\xe8\x01\n\x0eStrategyOldest\x126\n\x17max_candidate_sequences\x18\x01 \x01(\x05R\x15maxCa'
    b'ndidateSequences\x120\n\x14preferred_batch_size\x18\x02 \x03(\x05R\x12preferredBatchSize\x12?\n\x1cma'
    b'x_queue_delay_microseconds\x18\x03 \x01(\x04R\x19maxQueueDelayMicroseconds\x12+\n\x11preserve_'
    b'ordering\x18\x04 \x01(\x08R\x10preserveOrderingB\x11\n\x0fstrategy_choice"\x86\x04\n\x0fModelEnsembling\x12'
    b'3\n\x04step\x18\x01 \x03(\x0b2\x1f.inference.ModelEnsembling.StepR\x04step\x122\n\x15max_inflight_req'
    b'uests\x18\x02 \x01(\rR\x13maxInflightRequests\x1a\x89\x03\n\x04Step\x12\x1d\n\nmodel_name\x18\x01 \x01(\tR\tmodelName'
    b'\x12#\n\rmodel_version\x18\x02 \x01(\x03R\x0cmodelVersion\x12J\n\tinput_map\x18\x03 \x03(\x0b2-.inference.Mod'
    b'elEnsembling.Step.InputMapEntryR\x08inputMap\x12M\n\noutput_map\x18\x04 \x03(\x0b2..inferenc'
    b"e.ModelEnsembling.Step.OutputMapEntryR\toutputMap\x12'\n\x0fmodel_namespace\x18\x05 \x01("
    b'\tR\x0emodelNamespace\x1a;\n\rInputMapEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05val'
    b'ue:\x028\x01\x1a<\n\x0eOutputMapEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05value:\x028\x01"3\n\x0e'
    b'ModelParameter\x12!\n\x0cstring_value\x18\x01 \x01(\tR\x0bstringValue"\xe6\x10\n\x17ModelOptimizationP'
    b'olicy\x12>\n\x05graph\x18\x01 \x01(\x0b2(.inference.ModelOptimizationPolicy.GraphR\x05graph\x12L\n'
    b'\x08priority\x18\x02 \x01(\x0e20.inference.ModelOptimizationPolicy.ModelPriorityR\x08prior'
    b"ity\x12;\n\x04cuda\x18\x03 \x01(\x0b2'.inference.ModelOptimizationPolicy.CudaR\x04cuda\x12o\n\x16exec"
    b'ution_accelerators\x18\x04 \x01(\x0b28.inference.ModelOptimizationPolicy.ExecutionAc'
    b'celeratorsR\x15executionAccelerators\x12e\n\x13input_pinned_memory\x18\x05 \x01(\x0b25.inferen'
    b'ce.ModelOptimizationPolicy.PinnedMemoryBufferR\x11inputPinnedMemory\x12g\n\x14outp'
    b'ut_pinned_memory\x18\x06 \x01(\x0b25.inference.ModelOptimizationPolicy.PinnedMemoryB'
    b'ufferR\x12outputPinnedMemory\x12C\n\x1egather_kernel_buffer_threshold\x18\x07 \x01(\rR\x1bgathe'
    b'rKernelBufferThreshold\x12%\n\x0eeager_batching\x18\x08 \x01(\x08R\reagerBatching\x1a\xf6\x03\n\x15Execut'
    b'ionAccelerators\x12\x80\x01\n\x19gpu_execution_accelerator\x18\x01 \x03(\x0b2D.inference.ModelOpt'
    b'imizationPolicy.ExecutionAccelerators.AcceleratorR\x17gpuExecutionAccelerat'
    b'or\x12\x80\x01\n\x19cpu_execution_accelerator\x18\x02 \x03(\x0b2D.inference.ModelOptimizationPoli'
    b'cy.ExecutionAccelerators.AcceleratorR\x17cpuExecutionAccelerator\x1a\xd6\x01\n\x0bAccele'
    b'rator\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12t\n\nparameters\x18\x02 \x03(\x0b2T.inference.ModelOptimizat'
    b'ionPolicy.ExecutionAccelerators.Accelerator.ParametersEntryR\nparameters\x1a'
    b'=\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05value:\x028\x01\x1a,\n\x12Pinned'
    b'MemoryBuffer\x12\x16\n\x06enable\x18\x01 \x01(\x08R\x06enable\x1a\x1d\n\x05Graph\x12\x14\n\x05level\x18\x01 \x01(\x05R\x05level\x1a\xc1\x06\n\x04'
    b'Cuda\x12\x16\n\x06graphs\x18\x01 \x01(\x08R\x06graphs\x12(\n\x10busy_wait_events\x18\x02 \x01(\x08R\x0ebusyWaitEvents\x12P'
    b'\n\ngraph_spec\x18\x03 \x03(\x0b21.inference.ModelOptimizationPolicy.Cuda.GraphSpecR\tg'
    b'raphSpec\x12,\n\x12output_copy_stream\x18\x04 \x01(\x08R\x10outputCopyStream\x1a\xf6\x04\n\tGraphSpec\x12\x1d\n\n'
    b'batch_size\x18\x01 \x01(\x05R\tbatchSize\x12R\n\x05input\x18\x02 \x03(\x0b2<.inference.ModelOptimization'
    b'Policy.Cuda.GraphSpec.InputEntryR\x05input\x12h\n\x11graph_lower_bound\x18\x03 \x01(\x0b2<.inf'
    b'erence.ModelOptimizationPolicy.Cuda.GraphSpec.LowerBoundR\x0fgraphLowerBoun'
    b'd\x1a\x19\n\x05Shape\x12\x10\n\x03dim\x18\x01 \x03(\x03R\x03dim\x1a\xfd\x01\n\nLowerBound\x12\x1d\n\nbatch_size\x18\x01 \x01(\x05R\tbatchSi'
    b'ze\x12]\n\x05input\x18\x02 \x03(\x0b2G.inference.ModelOptimizationPolicy.Cuda.GraphSpec.Low'
    b'erBound.InputEntryR\x05input\x1aq\n\nInputEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12M\n\x05value\x18\x02 \x01(\x0b'
    b'27.inference.ModelOptimizationPolicy.Cuda.GraphSpec.ShapeR\x05value:\x028\x01\x1aq\n\n'
    b'InputEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12M\n\x05value\x18\x02 \x01(\x0b27.inference.ModelOptimizatio'
    b'nPolicy.Cuda.GraphSpec.ShapeR\x05value:\x028\x01"I\n\rModelPriority\x12\x14\n\x10PRIORITY_DEF'
    b'AULT\x10\x00\x12\x10\n\x0cPRIORITY_MAX\x10\x01\x12\x10\n\x0cPRIORITY_MIN\x10\x02"\xba\x03\n\x0bModelWarmup\x12\x12\n\x04name\x18\x01 \x01(\t'
    b'R\x04name\x12\x1d\n\nbatch_size\x18\x02 \x01(\rR\tbatchSize\x12:\n\x06inputs\x18\x03 \x03(\x0b2".inference.ModelW'
    b'armup.InputsEntryR\x06inputs\x12\x14\n\x05count\x18\x04 \x01(\rR\x05count\x1a\xcc\x01\n\x05Input\x120\n\tdata_type\x18\x01'
    b' \x01(\x0e2\x13.inference.DataTypeR\x08dataType\x12\x12\n\x04dims\x18\x02 \x03(\x03R\x04dims\x12\x1d\n\tzero_data\x18\x03 \x01'
    b'(\x08H\x00R\x08zeroData\x12!\n\x0brandom_data\x18\x04 \x01(\x08H\x00R\nrandomData\x12(\n\x0finput_data_file\x18\x05 \x01'
    b'(\tH\x00R\rinputDataFileB\x11\n\x0finput_data_type\x1aW\n\x0bInputsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12'
    b'2\n\x05value\x18\x02 \x01(\x0b2\x1c.inference.ModelWarmup.InputR\x05value:\x028\x01"A\n\x0fModelOperatio'
    b'ns\x12.\n\x13op_library_filename\x18\x01 \x03(\tR\x11opLibraryFilename"6\n\x16ModelTransactionPo'
    b'licy\x12\x1c\n\tdecoupled\x18\x01 \x01(\x08R\tdecoupled"\x8c\x02\n\x15ModelRepositoryAgents\x12>\n\x06agents\x18\x01'
    b' \x03(\x0b2&.inference.ModelRepositoryAgents.AgentR\x06agents\x1a\xb2\x01\n\x05Agent\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12V\n\nparameters\x18\x02 \x03(\x0b26.inference.ModelRepositoryAgents.Agent.P'
    b'arametersEntryR\nparameters\x1a=\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value'
    b'\x18\x02 \x01(\tR\x05value:\x028\x01",\n\x12ModelResponseCache\x12\x16\n\x06enable\x18\x01 \x01(\x08R\x06enable"\xa6\x03\n\x0cMode'
    b'lMetrics\x12L\n\x0emetric_control\x18\x01 \x03(\x0b2%.inference.ModelMetrics.MetricControlR'
    b'\rmetricControl\x1a\xc7\x02\n\rMetricControl\x12c\n\x11metric_identifier\x18\x01 \x01(\x0b26.inference.'
    b'ModelMetrics.MetricControl.MetricIdentifierR\x10metricIdentifier\x12e\n\x11histogr'
    b'am_options\x18\x02 \x01(\x0b26.inference.ModelMetrics.MetricControl.HistogramOptions'
    b'H\x00R\x10histogramOptions\x1a*\n\x10MetricIdentifier\x12\x16\n\x06family\x18\x01 \x01(\tR\x06family\x1a,\n\x10Hist'
    b'ogramOptions\x12\x18\n\x07buckets\x18\x01 \x03(\x01R\x07bucketsB\x10\n\x0emetric_options"\xfc\r\n\x0bModelConfig'
    b'\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08platform\x18\x02 \x01(\tR\x08platform\x12D\n\x0eversion_policy\x18\x03 \x01(\x0b'
    b'2\x1d.inference.ModelVersionPolicyR\rversionPolicy\x12$\n\x0emax_batch_size\x18\x04 \x01(\x05R\x0c'
    b'maxBatchSize\x12+\n\x05input\x18\x05 \x03(\x0b2\x15.inference.ModelInputR\x05input\x12.\n\x06output\x18\x06 \x03('
    b'\x0b2\x16.inference.ModelOutputR\x06output\x12D\n\x0einstance_group\x18\x07 \x03(\x0b2\x1d.inference.Mo'
    b'delInstanceGroupR\rinstanceGroup\x124\n\x16default_model_filename\x18\x08 \x01(\tR\x14default'
    b'ModelFilename\x12Z\n\x12cc_model_filenames\x18\t \x03(\x0b2,.inference.ModelConfig.CcMode'
    b'lFilenamesEntryR\x10ccModelFilenames\x12G\n\x0bmetric_tags\x18\n \x03(\x0b2&.inference.Model'
    b'Config.MetricTagsEntryR\nmetricTags\x12L\n\x10dynamic_batching\x18\x0b \x01(\x0b2\x1f.inference'
    b'.ModelDynamicBatchingH\x00R\x0fdynamicBatching\x12O\n\x11sequence_batching\x18\r \x01(\x0b2 .in'
    b'ference.ModelSequenceBatchingH\x00R\x10sequenceBatching\x12M\n\x13ensemble_scheduling'
    b'\x18\x0f \x01(\x0b2\x1a.inference.ModelEnsemblingH\x00R\x12ensembleScheduling\x12F\n\x0coptimization'
    b'\x18\x0c \x01(\x0b2".inference.ModelOptimizationPolicyR\x0coptimization\x12F\n\nparameters\x18\x0e'
    b' \x03(\x0b2&.inference.ModelConfig.ParametersEntryR\nparameters\x129\n\x0cmodel_warmup'
    b'\x18\x10 \x03(\x0b2\x16.inference.ModelWarmupR\x0bmodelWarmup\x12\x18\n\x07backend\x18\x11 \x01(\tR\x07backend\x12E\n'
    b'\x10model_operations\x18\x12 \x01(\x0b2\x1a.inference.ModelOperationsR\x0fmodelOperations\x12[\n\x18'
    b'model_transaction_policy\x18\x13 \x01(\x0b2!.inference.ModelTransactionPolicyR\x16model'
    b'TransactionPolicy\x126\n\x0bbatch_input\x18\x14 \x03(\x0b2\x15.inference.BatchInputR\nbatchInpu'
    b't\x129\n\x0cbatch_output\x18\x15 \x03(\x0b2\x16.inference.BatchOutputR\x0bbatchOutput\x12X\n\x17model_re'
    b'pository_agents\x18\x17 \x01(\x0b2 .inference.ModelRepositoryAgentsR\x15modelRepository'
    b'Agents\x12D\n\x0eresponse_cache\x18\x18 \x01(\x0b2\x1d.inference.ModelResponseCacheR\rresponseC'
    b'ache\x12\x18\n\x07runtime\x18\x19 \x01(\tR\x07runtime\x12<\n\rmodel_metrics\x18\x1a \x01(\x0b2\x17.inference.ModelM'
    b'etricsR\x0cmodelMetrics\x1aC\n\x15CcModelFilenamesEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value'
    b'\x18\x02 \x01(\tR\x05value:\x028\x01\x1a=\n\x0fMetricTagsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05v'
    b'alue:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference'
    b'.ModelParameterR\x05value:\x028\x01B\x13\n\x11scheduling_choice"F\n\x16ModelStatisticsReques'
    b't\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"V\n\x17ModelStatisticsRespon'
    b'se\x12;\n\x0bmodel_stats\x18\x01 \x03(\x0b2\x1a.inference.ModelStatisticsR\nmodelStats"9\n\x11Stati'
    b'sticDuration\x12\x14\n\x05count\x18\x01 \x01(\x04R\x05count\x12\x0e\n\x02ns\x18\x02 \x01(\x04R\x02ns"\xf2\x03\n\x0fInferStatistics\x126'
    b'\n\x07success\x18\x01 \x01(\x0b2\x1c.inference.StatisticDurationR\x07success\x120\n\x04fail\x18\x02 \x01(\x0b2\x1c.i'
    b'nference.StatisticDurationR\x04fail\x122\n\x05queue\x18\x03 \x01(\x0b2\x1c.inference.StatisticDur'
    b'ationR\x05queue\x12A\n\rcompute_input\x18\x04 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccompu'
    b'teInput\x12A\n\rcompute_infer\x18\x05 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccomputeInf'
    b'er\x12C\n\x0ecompute_output\x18\x06 \x01(\x0b2\x1c.inference.StatisticDurationR\rcomputeOutput\x12'
    b'9\n\tcache_hit\x18\x07 \x01(\x0b2\x1c.inference.StatisticDurationR\x08cacheHit\x12;\n\ncache_miss'
    b'\x18\x08 \x01(\x0b2\x1c.inference.StatisticDurationR\tcacheMiss"N\n\x0bMemoryUsage\x12\x12\n\x04type\x18\x01'
    b' \x01(\tR\x04type\x12\x0e\n\x02id\x18\x02 \x01(\x03R\x02id\x12\x1b\n\tbyte_size\x18\x03 \x01(\x04R\x08byteSize"\x80\x02\n\x14InferBatchSt'
    b'atistics\x12\x1d\n\nbatch_size\x18\x01 \x01(\x04R\tbatchSize\x12A\n\rcompute_input\x18\x02 \x01(\x0b2\x1c.inferen'
    b'ce.StatisticDurationR\x0ccomputeInput\x12A\n\rcompute_infer\x18\x03 \x01(\x0b2\x1c.inference.St'
    b'atisticDurationR\x0ccomputeInfer\x12C\n\x0ecompute_output\x18\x04 \x01(\x0b2\x1c.inference.Statis'
    b'ticDurationR\rcomputeOutput"\xfa\x02\n\x0fModelStatistics\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07ve'
    b"rsion\x18\x02 \x01(\tR\x07version\x12%\n\x0elast_inference\x18\x03 \x01(\x04R\rlastInference\x12'\n\x0finference"
    b"_count\x18\x04 \x01(\x04R\x0einferenceCount\x12'\n\x0fexecution_count\x18\x05 \x01(\x04R\x0eexecutionCount\x12C\n"
    b'\x0finference_stats\x18\x06 \x01(\x0b2\x1a.inference.InferStatisticsR\x0einferenceStats\x12@\n\x0bba'
    b'tch_stats\x18\x07 \x03(\x0b2\x1f.inference.InferBatchStatisticsR\nbatchStats\x129\n\x0cmemory_u'
    b'sage\x18\x08 \x03(\x0b2\x16.inference.MemoryUsageR\x0bmemoryUsage"\xba\x01\n\x18ModelRepositoryParam'
    b'eter\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12!\n\x0bint64_param\x18\x02 \x01(\x03H\x00R\nint64Param'
    b'\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParam\x12!\n\x0bbytes_param\x18\x04 \x01(\x0cH\x00R\nbytesParam'
    b'B\x12\n\x10parameter_choice"W\n\x16RepositoryIndexRequest\x12\'\n\x0frepository_name\x18\x01 \x01(\tR'
    b'\x0erepositoryName\x12\x14\n\x05ready\x18\x02 \x01(\x08R\x05ready"\xca\x01\n\x17RepositoryIndexResponse\x12E\n\x06mod'
    b'els\x18\x01 \x03(\x0b2-.inference.RepositoryIndexResponse.ModelIndexR\x06models\x1ah\n\nMode'
    b'lIndex\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version\x12\x14\n\x05state\x18\x03 \x01(\tR\x05sta'
    b'te\x12\x16\n\x06reason\x18\x04 \x01(\tR\x06reason"\x9f\x02\n\x1aRepositoryModelLoadRequest\x12\'\n\x0frepository_'
    b'name\x18\x01 \x01(\tR\x0erepositoryName\x12\x1d\n\nmodel_name\x18\x02 \x01(\tR\tmodelName\x12U\n\nparameters\x18'
    b'\x03 \x03(\x0b25.inference.RepositoryModelLoadRequest.ParametersEntryR\nparameters'
    b'\x1ab\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x129\n\x05value\x18\x02 \x01(\x0b2#.inference.ModelRe'
    b'positoryParameterR\x05value:\x028\x01"\x1d\n\x1bRepositoryModelLoadResponse"\xa3\x02\n\x1cReposito'
    b"ryModelUnloadRequest\x12'\n\x0frepository_name\x18\x01 \x01(\tR\x0erepositoryName\x12\x1d\n\nmodel_n"
    b'ame\x18\x02 \x01(\tR\tmodelName\x12W\n\nparameters\x18\x03 \x03(\x0b27.inference.RepositoryModelUnlo'
    b'adRequest.ParametersEntryR\nparameters\x1ab\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03k'
    b'ey\x129\n\x05value\x18\x02 \x01(\x0b2#.inference.ModelRepositoryParameterR\x05value:\x028\x01"\x1f\n\x1dRep'
    b'ositoryModelUnloadResponse"5\n\x1fSystemSharedMemoryStatusRequest\x12\x12\n\x04name\x18\x01 '
    b'\x01(\tR\x04name"\xd7\x02\n SystemSharedMemoryStatusResponse\x12R\n\x07regions\x18\x01 \x03(\x0b28.infere'
    b'nce.SystemSharedMemoryStatusResponse.RegionsEntryR\x07regions\x1ai\n\x0cRegionStat'
    b'us\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x10\n\x03key\x18\x02 \x01(\tR\x03key\x12\x16\n\x06offset\x18\x03 \x01(\x04R\x06offset\x12\x1b\n\tbyte'
    b'_size\x18\x04 \x01(\x04R\x08byteSize\x1at\n\x0cRegionsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12N\n\x05value\x18\x02 \x01(\x0b28'
    b'.inference.SystemSharedMemoryStatusResponse.RegionStatusR\x05value:\x028\x01"~\n!S'
    b'ystemSharedMemoryRegisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x10\n\x03key\x18\x02 \x01(\tR\x03key\x12\x16'
    b'\n\x06offset\x18\x03 \x01(\x04R\x06offset\x12\x1b\n\tbyte_size\x18\x04 \x01(\x04R\x08byteSize"$\n"SystemSharedMemor'
    b'yRegisterResponse"9\n#SystemSharedMemoryUnregisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04'
    b'name"&\n$SystemSharedMemoryUnregisterResponse"3\n\x1dCudaSharedMemoryStatusRe'
    b'quest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"\xc4\x02\n\x1eCudaSharedMemoryStatusResponse\x12P\n\x07regions\x18'
    b'\x01 \x03(\x0b26.inference.CudaSharedMemoryStatusResponse.RegionsEntryR\x07regions\x1a\\'
    b'\n\x0cRegionStatus\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1b\n\tdevice_id\x18\x02 \x01(\x04R\x08deviceId\x12\x1b\n\tbyte_'
    b'size\x18\x03 \x01(\x04R\x08byteSize\x1ar\n\x0cRegionsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12L\n\x05value\x18\x02 \x01(\x0b26.'
    b'inference.CudaSharedMemoryStatusResponse.RegionStatusR\x05value:\x028\x01"\x8e\x01\n\x1fCud'
    b'aSharedMemoryRegisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1d\n\nraw_handle\x18\x02 \x01(\x0cR\tra'
    b'wHandle\x12\x1b\n\tdevice_id\x18\x03 \x01(\x03R\x08deviceId\x12\x1b\n\tbyte_size\x18\x04 \x01(\x04R\x08byteSize""\n Cud'
    b'aSharedMemoryRegisterResponse"7\n!CudaSharedMemoryUnregisterRequest\x12\x12\n\x04na'
    b'me\x18\x01 \x01(\tR\x04name"$\n"CudaSharedMemoryUnregisterResponse"\x8e\x02\n\x13TraceSettingReq'
    b'uest\x12H\n\x08settings\x18\x01 \x03(\x0b2,.inference.TraceSettingRequest.SettingsEntryR\x08se'
    b'ttings\x12\x1d\n\nmodel_name\x18\x02 \x01(\tR\tmodelName\x1a$\n\x0cSettingValue\x12\x14\n\x05value\x18\x01 \x03(\tR\x05va'
    b'lue\x1ah\n\rSettingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12A\n\x05value\x18\x02 \x01(\x0b2+.inference.TraceS'
    b'ettingRequest.SettingValueR\x05value:\x028\x01"\xf2\x01\n\x14TraceSettingResponse\x12I\n\x08settin'
    b'gs\x18\x01 \x03(\x0b2-.inference.TraceSettingResponse.SettingsEntryR\x08settings\x1a$\n\x0cSet'
    b'tingValue\x12\x14\n\x05value\x18\x01 \x03(\tR\x05value\x1ai\n\rSettingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12B\n\x05va'
    b'lue\x18\x02 \x01(\x0b2,.inference.TraceSettingResponse.SettingValueR\x05value:\x028\x01"\xd6\x02\n\x12L'
    b'ogSettingsRequest\x12G\n\x08settings\x18\x01 \x03(\x0b2+.inference.LogSettingsRequest.Setti'
    b'ngsEntryR\x08settings\x1a\x8d\x01\n\x0cSettingValue\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12#\n\x0c'
    b'uint32_param\x18\x02 \x01(\rH\x00R\x0buint32Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParamB\x12'
    b'\n\x10parameter_choice\x1ag\n\rSettingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12@\n\x05value\x18\x02 \x01(\x0b2*.i'
    b'nference.LogSettingsRequest.SettingValueR\x05value:\x028\x01"\xd9\x02\n\x13LogSettingsRespo'
    b'nse\x12H\n\x08settings\x18\x01 \x03(\x0b2,.inference.LogSettingsResponse.SettingsEntryR\x08set'
    b'tings\x1a\x8d\x01\n\x0cSettingValue\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12#\n\x0cuint32_param\x18'
    b'\x02 \x01(\rH\x00R\x0buint32Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParamB\x12\n\x10parameter_c'
    b'hoice\x1ah\n\rSettingsEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12A\n\x05value\x18\x02 \x01(\x0b2+.inference.LogS'
    b'ettingsResponse.SettingValueR\x05value:\x028\x01*\xfa\x01\n\x08DataType\x12\x10\n\x0cTYPE_INVALID\x10\x00\x12\r'
    b'\n\tTYPE_BOOL\x10\x01\x12\x0e\n\nTYPE_UINT8\x10\x02\x12\x0f\n\x0bTYPE_UINT16\x10\x03\x12\x0f\n\x0bTYPE_UINT32\x10\x04\x12\x0f\n\x0bTYPE_'
    b'UINT64\x10\x05\x12\r\n\tTYPE_INT8\x10\x06\x12\x0e\n\nTYPE_INT16\x10\x07\x12\x0e\n\nTYPE_INT32\x10\x08\x12\x0e\n\nTYPE_INT64\x10\t\x12'
    b'\r\n\tTYPE_FP16\x10\n\x12\r\n\tTYPE_FP32\x10\x0b\x12\r\n\tTYPE_FP64\x10\x0c\x12\x0f\n\x0bTYPE_STRING\x10\r\x12\r\n\tTYPE_BF'
    b'16\x10\x0e2\xb7\x0f\n\x14GRPCInferenceService\x12K\n\nServerLive\x12\x1c.inference.ServerLiveReques'
    b't\x1a\x1d.inference.ServerLiveResponse"\x00\x12N\n\x0bServerReady\x12\x1d.inference.ServerRead'
    b'yRequest\x1a\x1e.inference.ServerReadyResponse"\x00\x12K\n\nModelReady\x12\x1c.inference.Mod'
    b'elReadyRequest\x1a\x1d.inference.ModelReadyResponse"\x00\x12W\n\x0eServerMetadata\x12 .infe'
    b'rence.ServerMetadataRequest\x1a!.inference.ServerMetadataResponse"\x00\x12T\n\rMode'
    b'lMetadata\x12\x1f.inference.ModelMetadataRequest\x1a .inference.ModelMetadataResp'
    b'onse"\x00\x12N\n\x0bModelConfig\x12\x1d.inference.ModelConfigRequest\x1a\x1e.inference.ModelCo'
    b'nfigResponse"\x00\x12Z\n\x0fModelStatistics\x12!.inference.ModelStatisticsRequest\x1a".i'
    b'nference.ModelStatisticsResponse"\x00\x12K\n\nModelInfer\x12\x1c.inference.ModelInferR'
    b'equest\x1a\x1d.inference.ModelInferResponse"\x00\x12Z\n\x0fRepositoryIndex\x12!.inference.R'
    b'epositoryIndexRequest\x1a".inference.RepositoryIndexResponse"\x00\x12f\n\x13Repositor'
    b'yModelLoad\x12%.inference.RepositoryModelLoadRequest\x1a&.inference.Repository'
    b'ModelLoadResponse"\x00\x12l\n\x15RepositoryModelUnload\x12\'.inference.RepositoryModel'
    b'UnloadRequest\x1a(.inference.RepositoryModelUnloadResponse"\x00\x12[\n\x10ModelStream'
    b'Infer\x12\x1c.inference.ModelInferRequest\x1a#.inference.ModelStreamInferResponse'
    b'"\x00(\x010\x01\x12u\n\x18SystemSharedMemoryStatus\x12*.inference.SystemSharedMemoryStatusR'
    b'equest\x1a+.inference.SystemSharedMemoryStatusResponse"\x00\x12{\n\x1aSystemSharedMem'
    b'oryRegister\x12,.inference.SystemSharedMemoryRegisterRequest\x1a-.inference.Sy'
    b'stemSharedMemoryRegisterResponse"\x00\x12\x81\x01\n\x1cSystemSharedMemoryUnregister\x12..in'
    b'ference.SystemSharedMemoryUnregisterRequest\x1a/.inference.SystemSharedMemo'
    b'ryUnregisterResponse"\x00\x12o\n\x16CudaSharedMemoryStatus\x12(.inference.CudaSharedM'
    b'emoryStatusRequest\x1a).inference.CudaSharedMemoryStatusResponse"\x00\x12u\n\x18CudaS'
    b'haredMemoryRegister\x12*.inference.CudaSharedMemoryRegisterRequest\x1a+.infere'
    b'nce.CudaSharedMemoryRegisterResponse"\x00\x12{\n\x1aCudaSharedMemoryUnregister\x12,.i'
    b'nference.CudaSharedMemoryUnregisterRequest\x1a-.inference.CudaSharedMemoryU'
    b'nregisterResponse"\x00\x12Q\n\x0cTraceSetting\x12\x1e.inference.TraceSettingRequest\x1a\x1f.in'
    b'ference.TraceSettingResponse"\x00\x12N\n\x0bLogSettings\x12\x1d.inference.LogSettingsReq'
    b'uest\x1a\x1e.inference.LogSettingsResponse"\x00b\x06proto3',
    'inference.proto',
)

_classes = private_pool.message_classes(DESCRIPTOR, __name__)
ServerLiveRequest = _classes['ServerLiveRequest']
ServerLiveResponse = _classes['ServerLiveResponse']
ServerReadyRequest = _classes['ServerReadyRequest']
ServerReadyResponse = _classes['ServerReadyResponse']
ModelReadyRequest = _classes['ModelReadyRequest']
ModelReadyResponse = _classes['ModelReadyResponse']
ServerMetadataRequest = _classes['ServerMetadataRequest']
ServerMetadataResponse = _classes['ServerMetadataResponse']
ModelMetadataRequest = _classes['ModelMetadataRequest']
ModelMetadataResponse = _classes['ModelMetadataResponse']
InferParameter = _classes['InferParameter']
InferTensorContents = _classes['InferTensorContents']
ModelInferRequest = _classes['ModelInferRequest']
ModelInferResponse = _classes['ModelInferResponse']
ModelStreamInferResponse = _classes['ModelStreamInferResponse']
ModelConfigRequest = _classes['ModelConfigRequest']
ModelConfigResponse = _classes['ModelConfigResponse']
ModelRateLimiter = _classes['ModelRateLimiter']
ModelInstanceGroup = _classes['ModelInstanceGroup']
ModelTensorReshape = _classes['ModelTensorReshape']
ModelVersionPolicy = _classes['ModelVersionPolicy']
ModelInput = _classes['ModelInput']
ModelOutput = _classes['ModelOutput']
BatchInput = _classes['BatchInput']
BatchOutput = _classes['BatchOutput']
ModelQueuePolicy = _classes['ModelQueuePolicy']
ModelDynamicBatching = _classes['ModelDynamicBatching']
ModelSequenceBatching = _classes['ModelSequenceBatching']
ModelEnsembling = _classes['ModelEnsembling']
ModelParameter = _classes['ModelParameter']
ModelOptimizationPolicy = _classes['ModelOptimizationPolicy']
ModelWarmup = _classes['ModelWarmup']
ModelOperations = _classes['ModelOperations']
ModelTransactionPolicy = _classes['ModelTransactionPolicy']
ModelRepositoryAgents = _classes['ModelRepositoryAgents']
ModelResponseCache = _classes['ModelResponseCache']
ModelMetrics = _classes['ModelMetrics']
ModelConfig = _classes['ModelConfig']
ModelStatisticsRequest = _classes['ModelStatisticsRequest']
ModelStatisticsResponse = _classes['ModelStatisticsResponse']
StatisticDuration = _classes['StatisticDuration']
InferStatistics = _classes['InferStatistics']
MemoryUsage = _classes['MemoryUsage']
InferBatchStatistics = _classes['InferBatchStatistics']
ModelStatistics = _classes['ModelStatistics']
ModelRepositoryParameter = _classes['ModelRepositoryParameter']
RepositoryIndexRequest = _classes['RepositoryIndexRequest']
RepositoryIndexResponse = _classes['RepositoryIndexResponse']
RepositoryModelLoadRequest = _classes['RepositoryModelLoadRequest']
RepositoryModelLoadResponse = _classes['RepositoryModelLoadResponse']
RepositoryModelUnloadRequest = _classes['RepositoryModelUnloadRequest']
RepositoryModelUnloadResponse = _classes['RepositoryModelUnloadResponse']
SystemSharedMemoryStatusRequest = _classes['SystemSharedMemoryStatusRequest']
SystemSharedMemoryStatusResponse = _classes['SystemSharedMemoryStatusResponse']
SystemSharedMemoryRegisterRequest = _classes['SystemSharedMemoryRegisterRequest']
SystemSharedMemoryRegisterResponse = _classes['SystemSharedMemoryRegisterResponse']
SystemSharedMemoryUnregisterRequest = _classes['SystemSharedMemoryUnregisterRequest']
SystemSharedMemoryUnregisterResponse = _classes['SystemSharedMemoryUnregisterResponse']
CudaSharedMemoryStatusRequest = _classes['CudaSharedMemoryStatusRequest']
CudaSharedMemoryStatusResponse = _classes['CudaSharedMemoryStatusResponse']
CudaSharedMemoryRegisterRequest = _classes['CudaSharedMemoryRegisterRequest']
CudaSharedMemoryRegisterResponse = _classes['CudaSharedMemoryRegisterResponse']
CudaSharedMemoryUnregisterRequest = _classes['CudaSharedMemoryUnregisterRequest']
CudaSharedMemoryUnregisterResponse = _classes['CudaSharedMemoryUnregisterResponse']
TraceSettingRequest = _classes['TraceSettingRequest']
TraceSettingResponse = _classes['TraceSettingResponse']
LogSettingsRequest = _classes['LogSettingsRequest']
LogSettingsResponse = _classes['LogSettingsResponse']
